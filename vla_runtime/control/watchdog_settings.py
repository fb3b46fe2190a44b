"""The watchdog's parameters: one table, from which declaration, validation and documentation come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_runtime.control.parameters import Parameter, Table


@dataclass(frozen=True)
class WatchdogSettings:
    """The values of :data:`WATCHDOG_TABLE`, checked; see there for what each means. Seconds, rad, rad/s."""

    period_s: float
    window_s: float
    stream_deadline_s: float
    answer_deadline_s: float
    policy_deadline_s: float
    max_observation_age_s: float
    joint_state_deadline_s: float
    fallback: str
    blind_fallback: str
    gentle_fraction: float
    brake_step_s: float
    retreat_poses: tuple[str, ...]
    retreat_speed: float
    recover_ticks: int
    recover_plans: int
    require_release: bool
    max_fallbacks: int
    max_fallbacks_window_s: float
    tracking_error_rad: float
    tracking_time_s: float
    reanchor_error_rad: float
    reanchor_time_s: float
    reanchor_speed: float
    reanchor_max: int
    teleop_enabled: bool
    teleop_timeout_s: float
    teleop_speed: float
    teleop_engage_rad: float
    seam_s: float
    limit_tolerance: float
    position_tolerance_rad: float


def _order(values: Mapping[str, Any]) -> str | None:
    if values["answer_deadline_s"] > values["policy_deadline_s"]:
        return (
            f"answer_deadline_s = {values['answer_deadline_s']:g} is above policy_deadline_s = "
            f"{values['policy_deadline_s']:g}; a late answer must be noticed before the policy is given up"
        )
    return None


def _too_small(values: Mapping[str, Any], name: str, least: float, formula: str, why: str) -> str | None:
    """Say that a value is below the ``least`` that others ask for by ``formula``, and ``why``; None if it is not."""
    if values[name] >= least:
        return None
    return f"{name} = {values[name]:g} is below {formula} = {least:g}: {why}"


def _stream(values: Mapping[str, Any]) -> str | None:
    why = "what is planned in time would be too old when it is judged; raise stream_deadline_s"
    return _too_small(values, "stream_deadline_s", 1.5 * values["period_s"], "1.5 period_s", why)


def _window(values: Mapping[str, Any]) -> str | None:
    least = values["stream_deadline_s"] + 2.0 * values["period_s"]
    why = "a message would brake before its silence is noticed; raise window_s or lower stream_deadline_s"
    return _too_small(values, "window_s", least, "stream_deadline_s + 2 period_s", why)


def _poses(values: Mapping[str, Any]) -> str | None:
    if values["fallback"] == "retreat" and not values["retreat_poses"]:
        return "fallback = 'retreat' needs retreat_poses: name the poses to go through, in order"
    return None


def _blind(values: Mapping[str, Any]) -> str | None:
    if values["blind_fallback"] == "retreat":
        return "blind_fallback = 'retreat' would move an arm whose state is unknown; use 'stop' or 'hold'"
    return None


WATCHDOG_TABLE: Table[WatchdogSettings] = Table(
    "watchdog",
    (
        Parameter("period_s", float, 0.02, 0.004, 0.1, "s", "control period", live=False),
        Parameter("window_s", float, 0.2, 0.05, 1.0, "s", "how far a command reaches before its brake, where the "
                  "watchdog makes it itself (retreat, teleop's approach)"),
        Parameter("stream_deadline_s", float, 0.04, 0.01, 1.0, "s", "silence of valid planned trajectories, from the "
                  "stamp of the last, until FALLBACK; until then the last one is driven on"),
        Parameter("answer_deadline_s", float, 0.25, 0.01, 60.0, "s", "age of the oldest unanswered request, or of the "
                  "last 'ready' heartbeat, until COASTING: one deadline miss"),
        Parameter("policy_deadline_s", float, 0.5, 0.01, 60.0, "s", "the same, until FALLBACK"),
        Parameter("max_observation_age_s", float, 2.0, 0.05, 60.0, "s", "age of the observation behind the running "
                  "plan, until FALLBACK"),
        Parameter("joint_state_deadline_s", float, 0.1, 0.01, 10.0, "s", "silence of /joint_states until FALLBACK, by "
                  "blind_fallback"),
        Parameter("fallback", str, "hold", doc="planner for a fallback with the measured state known: stop, hold, "
                  "retreat, or one from an installed package", live=False),
        Parameter("blind_fallback", str, "stop", doc="planner for a fallback with the measured state unknown",
                  live=False),
        Parameter("gentle_fraction", float, 0.5, 0.05, 1.0, "", "fraction of the acceleration and jerk limits that "
                  "'hold' uses", live=False),
        Parameter("brake_step_s", float, 0.01, 0.004, 0.05, "s", "grid of the stops", live=False),
        Parameter("retreat_poses", list[str], [], doc="named poses that 'retreat' goes through, in this order; the "
                  "order is what keeps it free of collisions", live=False),
        Parameter("retreat_speed", float, 0.3, 0.01, 1.0, "", "fraction of all limits on the way to those poses",
                  live=False),
        Parameter("recover_ticks", int, 10, 1, 1000, "", "good planned trajectories in a row before the policy has the "
                  "arm back"),
        Parameter("recover_plans", int, 2, 1, 20, "", "different plans, from observations made after the fallback "
                  "began, before the policy has the arm back"),
        Parameter("require_release", bool, False, doc="an operator must call watchdog/release before the policy has "
                  "the arm back"),
        Parameter("max_fallbacks", int, 0, 0, 1000, "", "this many fallbacks within max_fallbacks_window_s latch FAULT "
                  "(0: never)"),
        Parameter("max_fallbacks_window_s", float, 60.0, 1.0, 86400.0, "s", "see max_fallbacks"),
        Parameter("tracking_error_rad", float, 0.5, 0.0, 10.0, "rad", "commanded minus measured of a joint, while "
                  "somebody drives, that latches FAULT (0: never; discrete joints never)"),
        Parameter("tracking_time_s", float, 0.3, 0.0, 10.0, "s", "how long it must last"),
        Parameter("reanchor_error_rad", float, 0.15, 0.0, 10.0, "rad", "commanded minus measured, while the arm is "
                  "held, that makes the hold give way to where the arm was pushed (0: never; discrete joints never)"),
        Parameter("reanchor_time_s", float, 0.5, 0.0, 10.0, "s", "how long it must last"),
        Parameter("reanchor_speed", float, 0.2, 0.01, 1.0, "", "fraction of all limits for giving way"),
        Parameter("reanchor_max", int, 5, 0, 1000, "", "how often one hold gives way (a servo that sags would creep)"),
        Parameter("teleop_enabled", bool, True, doc="an operator's teleop_trajectory may take the arm from the policy"),
        Parameter("teleop_timeout_s", float, 0.2, 0.02, 5.0, "s", "silence of the operator's stream until FALLBACK"),
        Parameter("teleop_speed", float, 0.3, 0.01, 1.0, "", "fraction of all limits for going to where the operator's "
                  "stream is"),
        Parameter("teleop_engage_rad", float, 0.03, 0.0, 1.0, "rad", "closer than this the arm follows the stream "
                  "itself"),
        Parameter("seam_s", float, 0.1, 0.02, 0.5, "s", "time in which the difference between the last command and a "
                  "new plan fades out; longer where the limits want it"),
        Parameter("limit_tolerance", float, 0.01, 0.0, 0.5, "", "by what fraction velocity and acceleration may exceed "
                  "their limits before a trajectory is refused"),
        Parameter("position_tolerance_rad", float, 0.001, 0.0, 0.1, "rad", "the same for positions"),
    ),
    WatchdogSettings,
    (_order, _stream, _window, _poses, _blind),
)  # fmt: skip


def watchdog_settings(**values: Any) -> WatchdogSettings:
    """Return the settings with these values and defaults for the rest.

    Raises:
        ValueError: with every reason, if a value is out of its range or does not go with another.
    """
    return WATCHDOG_TABLE.load(values)
