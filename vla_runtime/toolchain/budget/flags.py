"""Honesty: what cannot be, what does not fit, and what a number rests on.

A claim below the physical floor is not fast, it is wrong: it was taken with fewer weights, fewer tokens, another format
or another computer than it says. The floor uses the data sheet's GB (1e9 bytes), whatever the roofline's convention.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vla_runtime.toolchain.budget.errors import BudgetUsageError
from vla_runtime.toolchain.budget.hardware import GIGABYTE, Computer, Device
from vla_runtime.toolchain.budget.roofline import Budget, StageBudget
from vla_runtime.toolchain.budget.stages import canonical

TOLERANCE = 0.005  # half a percent: rounding in published tables
LAUNCH_US = 5.0  # what starting one GPU kernel costs, roughly: an estimate, and not part of the roofline
BUSY = 0.15  # a larger share of the CPU that others take makes a measured prediction doubtful


@dataclass(frozen=True)
class Flag:
    """One thing that the reader must know. ``severity``: error (cannot be), warning (will hurt) or note.

    ``factor``: how far off, where that makes sense (floor over claim, bytes over memory), else None.
    """

    code: str
    severity: str
    message: str
    stage: str | None = None
    factor: float | None = None


def below_floor(who: str, stage: str, claim_ms: float, floor_ms: float, reason: str) -> Flag | None:
    """Return a flag if ``claim_ms`` is below ``floor_ms``: with the reason, and by what factor.

    Raises:
        ValueError: the claim is not a positive time.
    """
    if not 0 < claim_ms < float("inf"):
        raise BudgetUsageError(f"{stage}: a claimed time must be above 0 ms, not {claim_ms!r}")
    if claim_ms >= floor_ms * (1 - TOLERANCE):
        return None
    factor = floor_ms / claim_ms
    text = f"{stage}: {who} {claim_ms:.4g} ms is {factor:.2g} times below the floor of {floor_ms:.4g} ms: {reason}"
    return Flag("below_floor", "error", text, stage, factor)


def floor_reason(stage: StageBudget, bandwidth_bytes_s: float) -> str:
    """Return why a stage cannot be faster, in numbers."""
    once = "" if stage.passes == 1 else f", {stage.passes} times"
    read = stage.weight_bytes / bandwidth_bytes_s * 1e3
    if read * stage.passes >= 0.9 * stage.floor_ms:
        return (f"reading {stage.weight_bytes / 1e9:.3g} GB of {stage.precision} weights at "
                f"{bandwidth_bytes_s / 1e9:.4g} GB/s takes {read:.4g} ms{once}")  # fmt: skip
    return f"{stage.flop / 1e12:.3g} TFLOP at the peak of {stage.precision}, and every weight read once{once}"


def claim_flags(
    budget: Budget, claims: Mapping[str, float], computer: Computer, who: str = "the claim of"
) -> list[Flag]:
    """Return flags for claimed times: by stage name, or ``total``.

    Raises:
        BudgetError: a stage is not known or not part of the budget, or a time is not positive.
    """
    flags = []
    for name, claim_ms in claims.items():
        if name == "total":
            found = below_floor(who, "total", claim_ms, budget.floor_ms, "it is the sum of the stages' floors")
        else:
            stage = budget.stage(canonical(name))
            if stage is None:
                have = ", ".join(item.name for item in budget.stages)
                raise BudgetUsageError(f"{budget.policy} has no stage '{name}'; it has {have}")
            reason = floor_reason(stage, bandwidth_of(computer))
            found = below_floor(who, stage.name, claim_ms, stage.floor_ms, reason)
        flags += [found] if found else []
    return flags


def budget_flags(budget: Budget, computer: Computer, memory_bytes: float) -> list[Flag]:
    """Return what must be said of a prediction: room in memory, the roofline's convention, INT4 that does not help."""
    room = memory_flag(budget, computer, memory_bytes)
    flags = [room] if room else []
    for stage in budget.stages:
        if stage.ms < stage.floor_ms * (1 - TOLERANCE):
            flags.append(_prediction_below_floor(stage, budget.unit))
        if stage.precision == "w4a16" and stage.bound == "compute":
            text = f"{stage.name} is compute-bound and w4a16 computes in fp16: INT4 weights save memory here, no time"
            flags.append(Flag("int4_no_gain", "note", text, stage.name))
    small = [stage.name for stage in budget.stages if _launches_dominate(stage)] if isinstance(computer, Device) else []
    if small:
        text = (f"{', '.join(small)}: below {LAUNCH_US:g} µs an operator, about what starting one on a GPU takes; the "
                "model leaves that out, so expect more (a CUDA graph hides part of it)")  # fmt: skip
        flags.append(Flag("launch_overhead", "warning", text))
    busy = getattr(computer, "busy_share", 0.0)
    if busy > BUSY:
        text = f"other processes took {busy:.0%} of the CPU while this was measured: repeat it on a quiet machine"
        flags.append(Flag("busy_machine", "warning", text, None, busy))
    if getattr(computer, "caution", ""):
        flags.append(Flag("caution", "note", f"{computer.title}: {computer.caution}"))
    return flags


def _launches_dominate(stage: StageBudget) -> bool:
    """Whether the predicted time an operator is below what starting it takes."""
    executions = sum(cost.executions for cost in stage.operators)
    return executions > 0 and stage.ms * 1e3 / executions < LAUNCH_US


def _prediction_below_floor(stage: StageBudget, unit: str) -> Flag:
    """The roofline's binary GB promise 7.4 % more bandwidth than a data sheet's; an efficiency may promise anything."""
    factor = stage.floor_ms / stage.ms
    text = (
        f"{stage.name}: {stage.ms:.4g} ms at efficiency {stage.efficiency.value:.3g} is below the physical floor of "
        f"{stage.floor_ms:.4g} ms: "
    )
    if unit == "binary" and factor <= GIGABYTE["binary"] / GIGABYTE["decimal"] * (1 + TOLERANCE):
        text += "GB/s are read as 2^30 bytes here, and are 1e9 on the data sheet (--bandwidth-unit decimal)"
        return Flag("convention", "note", text, stage.name, factor)
    return Flag("below_floor", "error", text + "no engine has such an efficiency", stage.name, factor)


def memory_flag(budget: Budget, computer: Computer, memory_bytes: float) -> Flag | None:
    """Return a flag if the weights do not fit into the computer's memory, or leave little beside them."""
    have = computer.memory_gb * 1e9
    factor = memory_bytes / have
    weights = f"{memory_bytes / 1e9:.3g} GB of weights"
    text = f"{budget.policy} in {budget.precision} has at least {weights}, {computer.title} has"
    if factor > 1:
        return Flag("does_not_fit", "error", f"{text} {computer.memory_gb:.3g} GB: it does not fit", None, factor)
    if factor > 0.7:
        text += f" {computer.memory_gb:.3g} GB for them, the system, the caches and the images"
        return Flag("tight_memory", "warning", text, None, factor)
    return None


def bandwidth_of(computer: Computer) -> float:
    """Return bytes a second that the floor uses."""
    measured = getattr(computer, "bandwidth_bytes_s", None)
    return measured if measured is not None else computer.bandwidth_gb_s * 1e9
