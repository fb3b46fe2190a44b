"""What to change first: every technique is tried in the model, and only what acts on the bound that holds is named.

Savings are of the predicted (or, with a measurement, measured) time. What a technique costs in success rate is not in
this model: `vla parity` and `vla eval` measure that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from vla_runtime.toolchain.budget.hardware import Computer, Efficiency
from vla_runtime.toolchain.budget.operators import flow_step
from vla_runtime.toolchain.budget.policies import PolicyShape
from vla_runtime.toolchain.budget.precision import Precision, precision
from vla_runtime.toolchain.budget.roofline import Budget, StageBudget, evaluate
from vla_runtime.toolchain.budget.stages import Stage
from vla_runtime.toolchain.budget.subjects import Subject

LEAST_SAVING = 0.05  # of its stage: less is not worth a change
# Which bounds a technique acts on. Quantisation moves fewer bytes; only 8-bit formats also compute faster.
ACTS_ON = {
    "w4a16": {"memory"},
    "w8a8": {"memory", "compute"},
    "fp8": {"memory", "compute"},
    "fewer_image_tokens": {"memory", "compute"},
    "fewer_cameras": {"memory", "compute"},
    "fewer_steps": {"memory", "compute", "overhead"},
    "chunking": {"memory"},
    "engine": {"memory", "compute", "overhead"},
}
IMAGE_STAGES = {"fewer_image_tokens": ("prefill",), "fewer_cameras": ("vision", "prefill")}


@dataclass(frozen=True)
class Advice:
    """One change: on which stage, by which technique (a key of ACTS_ON), and what it would save there, in ms."""

    stage: str
    technique: str
    text: str
    bound: str
    before_ms: float
    saved_ms: float


def advise(
    subject: Subject,
    computer: Computer,
    modes: Mapping[str, Precision],
    budget: Budget,
    measured_ms: Mapping[str, float] | None = None,
) -> list[Advice]:
    """Return what could be changed, the largest saving first; the first one's stage is the one to attack.

    Args:
        measured_ms: measured stage times; savings are scaled to them, and a stage far from its roofline is told so.
    """
    found = []
    for stage in budget.stages:
        now_ms = (measured_ms or {}).get(stage.name, stage.ms)
        for technique, text, changed_ms in _changes(subject, computer, modes, budget, stage):
            saved = now_ms * (1 - changed_ms / stage.roofline_ms) if stage.roofline_ms else 0.0
            if stage.bound in ACTS_ON[technique] and saved >= LEAST_SAVING * now_ms:
                found.append(Advice(stage.name, technique, text, stage.bound, now_ms, saved))
        if measured_ms and stage.name in measured_ms and now_ms > 1.5 * stage.roofline_ms:
            text = (f"a better engine (fused attention, CUDA graph, fewer small operators): measured is "
                    f"{now_ms / stage.roofline_ms:.1f} times the roofline, at no cost in accuracy")  # fmt: skip
            found.append(Advice(stage.name, "engine", text, stage.bound, now_ms, now_ms - stage.roofline_ms))
    return sorted(found, key=lambda advice: -advice.saved_ms)


def first_stage(advice: list[Advice], budget: Budget, measured_ms: Mapping[str, float] | None = None) -> str:
    """Return the stage to attack first: where the largest saving is, or the longest one if nothing saves anything."""
    if advice:
        return advice[0].stage
    return max(budget.stages, key=lambda stage: (measured_ms or {}).get(stage.name, stage.ms)).name


def _changes(
    subject: Subject, computer: Computer, modes: Mapping[str, Precision], budget: Budget, stage: StageBudget
) -> Iterator[tuple[str, str, float]]:
    """Yield (technique, text, roofline of the stage after it) of everything that can be tried on a stage."""
    ideal = Efficiency(1.0, "roofline")

    def roofline(changed: Subject, changed_modes: Mapping[str, Precision]) -> float:
        after = changed.budget(computer, changed_modes, budget.unit, ideal).stage(stage.name)
        return after.roofline_ms

    mode = modes[stage.name]
    for name in ("w8a8", "fp8", "w4a16"):
        other = precision(name)
        narrower = other.weight_bits < mode.weight_bits and mode.compute != "int8"
        if narrower and computer.refusal(other) is None:
            text = {"w8a8": "INT8 weights and activations (W8A8)", "fp8": "FP8 weights and activations",
                    "w4a16": "INT4 weights (W4A16): fewer bytes to read, arithmetic stays fp16"}[name]  # fmt: skip
            yield name, text, roofline(subject, {**modes, stage.name: other})
    yield from _shape_changes(subject, stage, lambda changed: roofline(changed, modes))
    if stage.name == "action" and subject.shape and subject.shape.action.kind == "tokens" and stage.passes > 1:
        once = _chunked(subject.shape, computer, modes, budget.unit)
        yield "chunking", f"chunking: decode all {stage.passes} action tokens in one pass (parallel decoding)", once
    if stage.name == "action" and stage.passes > 1 and not (subject.shape and subject.shape.action.kind == "tokens"):
        half = max(1, stage.passes // 2)
        yield "fewer_steps", f"{half} flow steps instead of {stage.passes}", roofline(subject.with_steps(half), modes)


def _shape_changes(
    subject: Subject, stage: StageBudget, roofline: Callable[[Subject], float]
) -> Iterator[tuple[str, str, float]]:
    shape = subject.shape
    if shape is None:
        return
    if stage.name in IMAGE_STAGES["fewer_image_tokens"] and shape.image_tokens > 1:
        half = shape.image_tokens // 2
        text = f"fewer image tokens: {half} instead of {shape.image_tokens} an image (pooling, pruning)"
        yield "fewer_image_tokens", text, roofline(replace(subject, shape=shape.changed(image_tokens=half)))
    if stage.name in IMAGE_STAGES["fewer_cameras"] and shape.cameras > 1:
        text = f"fewer image tokens: {shape.cameras - 1} instead of {shape.cameras} cameras (or one every other time)"
        yield "fewer_cameras", text, roofline(replace(subject, shape=shape.changed(cameras=shape.cameras - 1)))


def _chunked(shape: PolicyShape, computer: Computer, modes: Mapping[str, Precision], unit: str) -> float:
    head = shape.action
    operators = [
        operator
        for group in head.layers
        for operator in flow_step(group.block, shape.prefix_tokens, head.tokens, "shared")
    ]
    ideal = Efficiency(1.0, "roofline")
    stage = Stage("action", tuple(operators))
    return evaluate(shape.name, [stage], computer, modes, unit=unit, efficiency=ideal).total_ms
