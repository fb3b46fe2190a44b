"""What the watchdog tells operators: the latched state, and its tasks in /diagnostics."""

from collections.abc import Mapping
from math import isinf
from typing import Any

from vla_runtime.control.precedence import Precedence
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.control.watchdog_states import Command
from vla_runtime.nodes.clock import NANO, StampClock
from vla_runtime.nodes.diagnostics import Level, Status
from vla_runtime.nodes.joint_map import JointReader

LEVELS = {
    "INACTIVE": Level.WARN,
    "WARMUP": Level.WARN,
    "NOMINAL": Level.OK,
    "COASTING": Level.WARN,
    "FALLBACK": Level.ERROR,
    "HOLD": Level.WARN,
    "TELEOP": Level.OK,
    "FAULT": Level.ERROR,
}
_COUNTERS = ("missed", "refused", "last_refusal", "transitions", "recovery", "planner", "plan_id", "policy_status")


def state_status(
    command: Command, core: Watchdog | None, figures: Mapping[str, Any], stamps: StampClock, precedence: Precedence
) -> Status:
    """``watchdog/state``: who is in command, why, since when (ROS seconds), and the counters.

    ``instance`` tells apart the watchdogs of one domain: only one of them may be in command, and where several have
    given way to each other (``gave_way``), the smallest is.
    """
    values: dict[str, Any] = {"cause": command.cause, "in_command": command.in_command}
    values |= {"instance": precedence.instance, "gave_way": precedence.given_way}
    if core is not None:
        values["since"] = f"{stamps.to_stamp(core.since) / NANO:.3f}"
    values |= {key: figures[key] for key in _COUNTERS if key in figures}
    state = str(command.state)
    return Status("watchdog", LEVELS[state], state, values)


def watchdog_status(command: Command, figures: Mapping[str, Any]) -> Status:
    """The state machine as a task of /diagnostics."""
    state = str(command.state)
    return Status("state", LEVELS[state], f"{state}: {command.cause}", figures)


def input_status(figures: Mapping[str, Any], joints: JointReader, settings: WatchdogSettings) -> Status:
    """The ages of what the watchdog listens to, against their deadlines."""
    limits = {
        "stream_age_s": settings.stream_deadline_s,
        "request_age_s": settings.answer_deadline_s,
        "heartbeat_age_s": settings.answer_deadline_s,
        "observation_age_s": settings.max_observation_age_s,
        "joint_state_age_s": settings.joint_state_deadline_s,
    }
    values = {key: figures[key] for key in limits if key in figures}
    values |= {"joint_states_refused": joints.refused, "joint_state_lag_s": joints.lag_s}
    if joints.fault:
        return Status("inputs", Level.ERROR, joints.fault, values)
    limit_s = settings.joint_state_deadline_s
    if abs(joints.lag_s) > limit_s:
        when = "before" if joints.lag_s > 0 else "after"
        text = f"joint states are stamped {abs(joints.lag_s):.3f} s {when} they arrive (limit {limit_s:g} s)"
        return Status(
            "inputs", Level.ERROR, f"{text}: the driver must stamp each one anew, by this host's clock", values
        )
    rhythm = figures.get("other_rhythm", "")
    old = [
        f"{key.removesuffix('_age_s')} {_age(values[key])} (limit {limit:g} s)"
        for key, limit in limits.items()
        if values.get(key) is not None and values[key] > limit
    ]
    faults = [text for text in (rhythm, "silent: " + ", ".join(old) if old else "") if text]
    if faults:
        return Status("inputs", Level.WARN, "; ".join(faults), values)
    return Status("inputs", Level.OK, "all in time", values)


def _age(seconds: float) -> str:
    return "never" if isinf(seconds) else f"{seconds:.3g} s"
