"""A bundle's budget: its stages read from their ONNX files, its steps and horizon from policy.yaml."""

from dataclasses import dataclass
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.files import read_yaml
from vla_runtime.toolchain.budget.onnx_graph import load_graph, operators_of, static_shapes
from vla_runtime.toolchain.budget.stages import ALIASES, STAGES, Stage, canonical

# How a stage's precision in policy.yaml is called here
STORED = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "int8": "w8a8",
    "w8a8": "w8a8",
    "int4": "w4a16",
    "w4a16": "w4a16",
}


@dataclass(frozen=True)
class BundleShape:
    """What a budget needs of a bundle. ``files`` and ``precisions``: by canonical stage name, in order of running."""

    name: str
    path: Path
    horizon: int
    step_s: float
    steps: int
    files: dict[str, Path]
    precisions: dict[str, str]

    def passes(self, stage: str) -> int:
        """The action stage runs once for each step of the sampler, the others once."""
        return self.steps if stage == "action" else 1


def read_bundle(path: str | Path) -> BundleShape:
    """Read policy.yaml as far as a budget needs it; hashes and contracts are the loader's business, not a budget's.

    Raises:
        BudgetError: no bundle is there, or a number that the budget needs is missing; the text names file and key.
    """
    root = Path(path)
    manifest = root / "policy.yaml"
    if not manifest.is_file():
        raise BudgetError(f"bundle '{root}': no policy.yaml in it; give the folder of a bundle")
    content = read_yaml(manifest)
    stages = content.get("stages")
    if not isinstance(stages, dict) or not stages:
        raise BudgetError(f"{manifest}: 'stages' must name the ONNX files, not {stages!r}")
    files, precisions = {}, {}
    for name, stage in stages.items():
        if not isinstance(stage, dict) or not isinstance(stage.get("file"), str):
            raise BudgetError(f"{manifest}: stages.{name}.file must name an ONNX file, not {stage!r}")
        if name not in STAGES and name not in ALIASES:
            raise BudgetError(f"{manifest}: stage '{name}' is not known; stages are {', '.join(STAGES)}")
        key = canonical(name)
        files[key] = root / stage["file"]
        precisions[key] = STORED.get(str(stage.get("precision", "fp32")), "fp32")
    files = {name: files[name] for name in STAGES if name in files}
    sampler = content.get("sampler") or {}
    return BundleShape(
        name=str(content.get("name", root.name)),
        path=root,
        horizon=_positive(content.get("horizon"), f"{manifest}: horizon", whole=True),
        step_s=_positive(content.get("dt_s"), f"{manifest}: dt_s"),
        steps=_positive(sampler.get("steps", 1), f"{manifest}: sampler.steps", whole=True),
        files=files,
        precisions=precisions,
    )


def graph_stages(bundle: BundleShape) -> list[Stage]:
    """Return the stages with the operators that the ONNX files say, for a computer from a data sheet."""
    stages = []
    for name, path in bundle.files.items():
        model = load_graph(path)
        operators = operators_of(model, static_shapes(model, str(path)), str(path))
        stages.append(_stage(bundle, name, operators))
    return stages


def measured_stages(
    bundle: BundleShape, threads: int, *, whole: bool = False
) -> tuple[list[Stage], dict[str, float] | None]:
    """Return the stages with the operators of the engine's own graphs, each timed alone on this computer.

    With ``whole`` the second value has the times of the stages themselves by name, in ms, taken in the same rounds.
    """
    from vla_runtime.toolchain.budget.engine_rates import measure_stages

    passes = [bundle.passes(name) for name in bundle.files]
    found = measure_stages(list(bundle.files.values()), threads, passes=passes, whole=whole)
    stages = [_stage(bundle, name, item.operators) for name, item in zip(bundle.files, found)]
    return stages, {name: item.whole_s * 1e3 for name, item in zip(bundle.files, found)} if whole else None


def _stage(bundle: BundleShape, name: str, operators) -> Stage:
    count = sum(operator.repeat for operator in operators)
    return Stage(name, tuple(operators), bundle.passes(name), f"{bundle.files[name].name}, {count} operators")


def _positive(value, where: str, *, whole: bool = False):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0 or (whole and value != int(value)):
        raise BudgetError(f"{where} must be a positive {'whole ' if whole else ''}number, not {value!r}")
    return int(value) if whole else float(value)
