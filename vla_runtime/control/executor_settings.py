"""The executor's parameters: one table from which declaration, validation and documentation are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_runtime.control.blending import BLENDS
from vla_runtime.control.parameters import Parameter, Table


@dataclass(frozen=True)
class ExecutorSettings:
    """Values of :data:`EXECUTOR_TABLE`, checked. Make one with :func:`executor_settings`."""

    period_s: float
    window_s: float
    k: int
    clamp_k: bool
    queue_threshold: float
    blend: str
    blend_s: float
    rtc_blend_s: float
    ensemble_m: float
    ensemble_plans: int
    catch_up_ratio: float
    still_speed: float
    smoothing_s: float
    request_timeout_s: float
    initial_delay_s: float
    delay_window: int
    warmup_answers: int
    idle_gap_s: float
    prefix_history_s: float
    max_plan_age_s: float
    max_observation_lag_s: float
    future_tolerance_s: float
    position_tolerance: float
    max_speed_ratio: float
    max_jump: float
    max_joint_age_s: float
    mismatch: float
    effort_spike: float
    trigger_holdoff_s: float

    @property
    def takeover_s(self) -> float:
        """Seconds in which the offset of a new plan is worked off; 0 for as fast as the limits allow."""
        return {"cut": 0.0, "rtc": self.rtc_blend_s}.get(self.blend, self.blend_s)


def _window_holds_a_step(values: Mapping[str, Any]) -> str | None:
    if values["window_s"] < 2 * values["period_s"]:
        return f"window_s = {values['window_s']:g} must be at least two control periods ({2 * values['period_s']:g} s)"
    return None


def _age_exceeds_lag(values: Mapping[str, Any]) -> str | None:
    if values["max_plan_age_s"] <= values["max_observation_lag_s"]:
        return (
            f"max_plan_age_s = {values['max_plan_age_s']:g} must exceed max_observation_lag_s = "
            f"{values['max_observation_lag_s']:g}: a plan is older than its observation was when it was asked for"
        )
    return None


EXECUTOR_TABLE: Table[ExecutorSettings] = Table(
    "executor",
    (
        Parameter(
            "period_s", float, 0.02, 0.004, 0.1, "s", "Control period; the stream leaves once per period.", live=False
        ),
        Parameter(
            "window_s",
            float,
            0.2,
            0.02,
            1.0,
            "s",
            "How much of the plan each message carries before its brake. Bounds blind travel: longer than detection "
            "and takeover by the watchdog, no more.",
        ),
        Parameter(
            "k",
            int,
            10,
            1,
            1000,
            "ticks",
            "Control ticks between requests. Safe between the inference delay d and H - d (both in ticks); outside it "
            "is refused with the range.",
        ),
        Parameter("clamp_k", bool, True, doc="Use the nearest safe K when the delay has drifted so that K is unsafe."),
        Parameter(
            "queue_threshold",
            float,
            0.0,
            0.0,
            1.0,
            "",
            "Ask when less than this fraction of the plan is left, instead of every K ticks; 0: use K.",
        ),
        Parameter(
            "blend", str, "crossfade", choices=BLENDS, doc="How a new plan takes over from the old, see docs/tuning.md."
        ),
        Parameter(
            "blend_s", float, 0.2, 0.0, 2.0, "s", "Time in which crossfade and ensemble work off a new plan's offset."
        ),
        Parameter("rtc_blend_s", float, 0.08, 0.0, 2.0, "s", "The same for rtc, whose plans begin where we are."),
        Parameter("ensemble_m", float, 0.01, 0.0, 10.0, "", "Weight exp(-m i) of plan i, 0 the oldest (ACT)."),
        Parameter("ensemble_plans", int, 8, 1, 64, "", "The most plans that are averaged."),
        Parameter(
            "catch_up_ratio",
            float,
            0.5,
            0.05,
            1.0,
            "",
            "Fraction of the acceleration limit with which the arm catches up with its plan (not for cut).",
        ),
        Parameter(
            "still_speed",
            float,
            0.02,
            0.0,
            10.0,
            "rad/s",
            "Where the plan moves faster than this, a joint waits for it rather than go back to it (not for cut).",
        ),
        Parameter(
            "smoothing_s",
            float,
            0.0,
            0.0,
            0.5,
            "s",
            "Smooth each plan over about this time to either side, without lag; 0: not. For plans that jitter.",
        ),
        Parameter(
            "request_timeout_s",
            float,
            1.0,
            0.05,
            60.0,
            "s",
            "An unanswered request is given up after this time and a new one sent: the policy may have been restarted.",
        ),
        Parameter("initial_delay_s", float, 0.1, 0.0, 10.0, "s", "Inference delay assumed before the first answer."),
        Parameter(
            "delay_window", int, 200, 10, 100000, "", "Answers over which the 99th percentile of the delay is taken."
        ),
        Parameter("warmup_answers", int, 1, 0, 100, "", "Answers after a start that are left out of the estimate."),
        Parameter(
            "idle_gap_s",
            float,
            2.0,
            0.1,
            3600.0,
            "s",
            "An answer to a request sent longer than this after the last answer is left out: the engine was idle.",
        ),
        Parameter(
            "prefix_history_s",
            float,
            0.2,
            0.0,
            2.0,
            "s",
            "How far before its stamp a request's prefix reaches back, for observations older than the request.",
        ),
        Parameter(
            "max_plan_age_s", float, 2.0, 0.05, 60.0, "s", "A plan whose observation is older on arrival is refused."
        ),
        Parameter(
            "max_observation_lag_s",
            float,
            0.1,
            0.0,
            10.0,
            "s",
            "An observation older than its request by more than this, and by more than K ticks, is refused.",
        ),
        Parameter("future_tolerance_s", float, 0.02, 0.0, 1.0, "s", "How far ahead an observation's stamp may lie."),
        Parameter(
            "position_tolerance",
            float,
            0.05,
            0.0,
            1.0,
            "rad",
            "A waypoint beyond a position limit by up to this is set onto it; beyond it the plan is refused.",
        ),
        Parameter(
            "max_speed_ratio",
            float,
            3.0,
            0.0,
            100.0,
            "",
            "A plan that asks for more than this times a velocity limit is refused (up to it, slowed down); 0: never.",
        ),
        Parameter(
            "max_jump",
            float,
            0.5,
            0.0,
            10.0,
            "rad",
            "A plan farther than this from the command where it would take over is refused; 0: never.",
        ),
        Parameter("max_joint_age_s", float, 0.1, 0.01, 5.0, "s", "No plan is sent while joint states are older."),
        Parameter(
            "mismatch",
            float,
            0.2,
            0.0,
            10.0,
            "rad",
            "Ask early when a joint is farther than this from its command; 0: off.",
        ),
        Parameter(
            "effort_spike", float, 0.0, 0.0, 1e6, "Nm", "Ask early when an effort leaves its mean by this; 0: off."
        ),
        Parameter("trigger_holdoff_s", float, 0.5, 0.0, 60.0, "s", "Least time between early requests of one cause."),
    ),
    ExecutorSettings,
    (_window_holds_a_step, _age_exceeds_lag),
)


def executor_settings(**values: Any) -> ExecutorSettings:
    """Return checked settings; what is not given takes its default. Raises ``ValueError`` with every reason."""
    return EXECUTOR_TABLE.load(values)
