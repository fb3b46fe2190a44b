"""One budget with everything that is said about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vla_runtime.toolchain.budget.advice import Advice, advise, first_stage
from vla_runtime.toolchain.budget.control import ControlBudget, control_budget
from vla_runtime.toolchain.budget.flags import (
    Flag,
    bandwidth_of,
    below_floor,
    budget_flags,
    claim_flags,
    floor_reason,
)
from vla_runtime.toolchain.budget.hardware import Computer, Efficiency
from vla_runtime.toolchain.budget.overlay import Measured, Row, rows
from vla_runtime.toolchain.budget.precision import Precision
from vla_runtime.toolchain.budget.profile import LatencyProfile
from vla_runtime.toolchain.budget.roofline import Budget
from vla_runtime.toolchain.budget.subjects import Subject


@dataclass(frozen=True)
class Branches:
    """How much slower than usual an inference can get: reasoning on a share of the inputs, steps up to a maximum."""

    reasoning_tokens: int = 0
    share: float = 1.0
    steps_max: int | None = None


@dataclass(frozen=True)
class Loop:
    """The control loop that the latency has to fit into."""

    control_hz: float = 50.0
    k: int | None = None
    deadline_ms: float | None = None
    asynchronous: bool = True


@dataclass(frozen=True)
class Report:
    """A budget, what it means to the loop, what must be said of it, and what to do about it.

    ``stage_ms`` are the times that count: measured ones where there are some, else predicted ones. ``assumed`` is the
    efficiency of the prediction.
    """

    policy: str
    device: str
    precision: str
    stage_ms: dict[str, float]
    profile: LatencyProfile
    steps: int
    branches: Branches
    control: ControlBudget
    budget: Budget | None = None
    flags: tuple[Flag, ...] = ()
    advice: tuple[Advice, ...] = ()
    overlay: tuple[Row, ...] = ()
    assumed: Efficiency | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def total_ms(self) -> float:
        """Time of one inference on the slow branch's counts of tokens, without extra steps."""
        return sum(self.stage_ms.values())

    @property
    def first(self) -> str | None:
        """The stage to attack first."""
        measured = {row.stage: row.measured_ms for row in self.overlay}
        return first_stage(list(self.advice), self.budget, measured) if self.budget else None


def report(
    subject: Subject,
    computer: Computer,
    modes: Mapping[str, Precision],
    efficiency: Efficiency,
    *,
    unit: str = "binary",
    branches: Branches | None = None,
    loop: Loop | None = None,
    measured: Measured | None = None,
    claims: Mapping[str, float] | None = None,
) -> Report:
    """Return everything there is to say about ``subject`` on ``computer``.

    Raises:
        BudgetError: a number is out of its range, a number format is refused, or a stage is not known.
    """
    branches, loop = branches or Branches(), loop or Loop()
    budget = subject.budget(computer, modes, unit, efficiency)
    overlay = rows(budget, measured) if measured else []
    flags = budget_flags(budget, computer, subject.weight_bytes(computer, modes))
    measured_ms = {row.stage: row.measured_ms for row in overlay}
    for row in overlay:  # where there is a measurement, its efficiency replaces the assumed one
        budget = budget.with_efficiency(row.stage, Efficiency(row.efficiency, f"measured: {measured.source}"))
    stage_ms = {stage.name: stage.ms for stage in budget.stages}
    decode = budget.stage("decode")
    profile = LatencyProfile(
        vision_ms=stage_ms.get("vision", 0.0),
        prefill_ms=stage_ms.get("prefill", 0.0),
        token_ms=stage_ms["decode"] / decode.passes if decode else 0.0,
        step_ms=stage_ms.get("action", 0.0) / subject.steps,
        name=f"{budget.policy} on {budget.device}",
    )
    for row in overlay:
        reason = floor_reason(budget.stage(row.stage), bandwidth_of(computer))
        found = below_floor("the measured", row.stage, row.measured_ms, row.floor_ms, reason)
        flags += [found] if found else []
    flags += claim_flags(budget, claims or {}, computer)
    control = _control(profile, subject.horizon, subject.step_s, subject.steps, branches, loop)
    flags += control_flags(control)
    return Report(
        policy=budget.policy,
        device=budget.device,
        precision=budget.precision,
        stage_ms=stage_ms,
        profile=profile,
        steps=subject.steps,
        branches=branches,
        control=control,
        budget=budget,
        flags=tuple(flags),
        advice=tuple(advise(subject, computer, modes, budget, measured_ms)),
        overlay=tuple(overlay),
        assumed=efficiency,
        notes={"measured_file": measured.source, "ignored_stages": list(measured.ignored)} if measured else {},
    )


def published_report(subject: Subject, branches: Branches, loop: Loop) -> Report:
    """Return the report of a policy that has only a published stage profile."""
    shape = subject.shape
    published = shape.published
    profile = published.profile
    stage_ms = {
        "vision": profile.vision_ms,
        "prefill": profile.prefill_ms,
        "decode": branches.reasoning_tokens * profile.token_ms,
        "action": published.steps * profile.step_ms,
    }
    control = _control(profile, shape.horizon, shape.step_s, published.steps, branches, loop)
    notes = {}
    if published.trajectory_tokens:
        total = profile.total_ms(branches.reasoning_tokens, 0, published.trajectory_ms)
        notes["trajectory_as_tokens"] = {"tokens": published.trajectory_tokens, "total_ms": total}
    return Report(
        policy=shape.name,
        device=published.device,
        precision="-",
        stage_ms=stage_ms,
        profile=profile,
        steps=published.steps,
        branches=branches,
        control=control,
        flags=tuple(control_flags(control)),
        notes=notes,
    )


def control_flags(control: ControlBudget) -> list[Flag]:
    """Return a warning if the loop does not close on the slow branch, whatever it does on the mean."""
    if control.holds_on_slow and control.safe:
        return []
    mean = ("On the mean it would hold: the mean is not what a deadline is about. "
            if control.holds_on_mean and control.slow_ms > control.mean_ms else "")  # fmt: skip
    return [Flag("deadline_missed", "warning", f"control: {mean}{control.verdict}", None, None)]


def _control(
    profile: LatencyProfile, horizon: int, step_s: float, steps: int, branches: Branches, loop: Loop
) -> ControlBudget:
    """Hold mean and slow branch against the loop."""
    tokens = branches.reasoning_tokens
    mean = profile.expected_ms(branches.share, tokens, steps)
    slow = profile.worst_ms(tokens, max(steps, branches.steps_max or 0))
    return control_budget(
        mean,
        max(slow, mean),
        horizon=horizon,
        step_s=step_s,
        control_hz=loop.control_hz,
        k=loop.k,
        deadline_ms=loop.deadline_ms,
        asynchronous=loop.asynchronous,
    )
