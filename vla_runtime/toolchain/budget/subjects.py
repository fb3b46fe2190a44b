"""What a budget can be made for: a policy from the data files, or a bundle on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vla_runtime.toolchain.budget.bundles import BundleShape, graph_stages, measured_stages, read_bundle
from vla_runtime.toolchain.budget.errors import BudgetError, BudgetUsageError
from vla_runtime.toolchain.budget.hardware import Computer, Efficiency, tensor_bytes
from vla_runtime.toolchain.budget.measure import MeasuredComputer
from vla_runtime.toolchain.budget.policies import PolicyShape
from vla_runtime.toolchain.budget.precision import Precision, precision
from vla_runtime.toolchain.budget.roofline import Budget, evaluate
from vla_runtime.toolchain.budget.stages import STAGES, Stage, canonical, stages_of


@dataclass(frozen=True)
class Subject:
    """A policy to budget, from shapes (``shape``) or from a bundle's graphs (``bundle``); exactly one is set.

    ``graphs`` keeps the bundle's stages once they have been read, ``whole_ms`` what they took if that was asked for.
    """

    shape: PolicyShape | None = None
    bundle: BundleShape | None = None
    graphs: tuple[Stage, ...] = ()
    whole_ms: Mapping[str, float] | None = None

    @property
    def name(self) -> str:
        """The policy's name."""
        return (self.shape or self.bundle).name

    @property
    def horizon(self) -> int:
        """Actions in a chunk."""
        return (self.shape or self.bundle).horizon

    @property
    def step_s(self) -> float:
        """Seconds between two actions of the chunk."""
        return (self.shape or self.bundle).step_s

    @property
    def steps(self) -> int:
        """Passes of the action head in one inference."""
        if self.bundle:
            return self.bundle.steps
        head = self.shape.action
        return head.steps if head.kind == "flow" else head.tokens

    def with_steps(self, steps: int) -> "Subject":
        """Return the subject with another number of passes of the action head."""
        if self.shape:
            key = "steps" if self.shape.action.kind == "flow" else "tokens"
            return replace(self, shape=self.shape.changed(**{key: steps}))
        if steps < 1:
            raise BudgetUsageError(f"{self.name}: steps must be positive, not {steps}")
        graphs = tuple(replace(stage, passes=steps) if stage.name == "action" else stage for stage in self.graphs)
        return replace(self, bundle=replace(self.bundle, steps=steps), graphs=graphs)

    def prepared(self, computer: Computer, *, whole: bool = False) -> "Subject":
        """Return the subject with its graphs read (and, on a measured computer, timed), so that it happens once.

        ``whole`` also times the stages of a bundle themselves, see ``whole_ms``.
        """
        if self.shape or self.graphs:
            return self
        if isinstance(computer, MeasuredComputer):
            stages, whole_ms = measured_stages(self.bundle, computer.threads, whole=whole)
            return replace(self, graphs=tuple(stages), whole_ms=whole_ms)
        return replace(self, graphs=tuple(graph_stages(self.bundle)))

    def stages(self, computer: Computer) -> list[Stage]:
        """Return the stages of one inference."""
        return stages_of(self.shape) if self.shape else list(self.prepared(computer).graphs)

    def precisions(self, spec: str | None, computer: Computer) -> dict[str, Precision]:
        """Return the number format of every stage; see ``parse_precision``."""
        if spec is None:
            if self.bundle:
                stored = {name: precision(mode) for name, mode in self.bundle.precisions.items()}
                return {name: stored.get(name, precision("fp32")) for name in STAGES}
            spec = "fp32" if isinstance(computer, MeasuredComputer) else self.shape.precision
        return parse_precision(spec)

    def budget(
        self,
        computer: Computer,
        modes: Mapping[str, Precision],
        unit: str = "binary",
        efficiency: Efficiency | Mapping[str, Efficiency] | None = None,
    ) -> Budget:
        """Return the subject's budget on ``computer``."""
        return evaluate(self.name, self.stages(computer), computer, modes, unit=unit, efficiency=efficiency)

    def weight_bytes(self, computer: Computer, modes: Mapping[str, Precision]) -> float:
        """Return the bytes of all weights; token-by-token stages share those of the prefill. A lower bound."""
        sizes = {}
        for stage in self.stages(computer):
            sizes[stage.name] = sum(
                tensor_bytes(tensor, operator, modes[stage.name]) * operator.repeat
                for operator in stage.operators
                if not operator.counted_twice
                for tensor in operator.tensors
                if tensor.role in ("weight", "head")
            )
        if self.shape and self.shape.action.kind == "tokens":
            sizes["prefill"] = max(sizes.get("prefill", 0.0), sizes.pop("action"))
        sizes.pop("decode", None)
        return sum(sizes.values())


def find_subject(name: str, policies: Mapping[str, PolicyShape], bundles: Path | None = None) -> Subject:
    """Return the policy called ``name``: from the data files, a bundle's folder, or a bundle under ``bundles``.

    Raises:
        BudgetError: nothing has that name; the text lists what there is.
    """
    if name in policies:
        return Subject(shape=policies[name])
    if (Path(name) / "policy.yaml").is_file():
        return Subject(bundle=read_bundle(name))
    if bundles is not None and Path(name).name == name:
        if (bundles / name / "policy.yaml").is_file():
            return Subject(bundle=read_bundle(bundles / name))
        if name == "demo":
            raise BudgetError(
                f"policy 'demo' is the bundle {bundles / name}, which is not there; train it with `vla train-demo`"
            )
    known = ", ".join(sorted(policies))
    raise BudgetUsageError(f"policy '{name}' is not known; choose one of {known}, or the folder of a bundle")


def parse_precision(spec: str) -> dict[str, Precision]:
    """Read ``MODE`` or ``MODE,STAGE=MODE,...``, e.g. ``fp16,prefill=w4a16``, into a mode for every stage.

    Raises:
        BudgetError: a mode or a stage is not known; the text lists what is.
    """
    parts = [part.strip() for part in spec.split(",") if part.strip()]
    plain = [part for part in parts if "=" not in part]
    if len(plain) != 1:
        raise BudgetUsageError(f"precision '{spec}' must name one mode for all stages, e.g. fp16 or fp16,prefill=w4a16")
    modes = dict.fromkeys(STAGES, precision(plain[0]))
    for part in parts:
        if "=" in part:
            stage, _, mode = part.partition("=")
            modes[canonical(stage.strip())] = precision(mode.strip())
    return modes
