"""What the watchdog tells about itself, as plain numbers and words."""

from typing import Any

from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_states import IN_COMMAND, State


def snapshot(watchdog: Watchdog, now: float) -> dict[str, Any]:
    """Return state, ages in seconds (infinite: never; None: nothing is due) and counters, for /diagnostics."""
    silences, state = watchdog.silences, watchdog.state
    return {
        "state": str(state),
        "cause": watchdog.cause,
        "since_s": now - watchdog.since,
        "in_command": "none" if watchdog.drive.motion is None else IN_COMMAND[state],
        "planner": watchdog.drive.planner,
        "plan_id": silences.plan_id,
        "policy_status": silences.policy.status,
        "stream_age_s": silences.stream_age_s(now),
        "request_age_s": silences.policy.request_age_s(now),
        "heartbeat_age_s": silences.policy.heartbeat_age_s(now),
        "observation_age_s": silences.observation_age_s(now),
        "joint_state_age_s": silences.joints.age_s(now),
        "recovery": watchdog.recovery.missing(watchdog.settings) if state is State.FALLBACK else "",
        "missed": dict(watchdog.missed),
        "refused": dict(watchdog.refused),
        "last_refusal": watchdog.last_refusal,
        "other_rhythm": watchdog.other_rhythm,
        "transitions": {f"{a}->{b}": n for (a, b), n in watchdog.passed.items()},
        "odd_stamps": silences.joints.odd_stamps + silences.policy.odd_stamps,
        "joint_states_refused": silences.joints.refused,
        "planner_failures": watchdog.drive.failed,
        "last_planner_failure": watchdog.drive.failures[-1] if watchdog.drive.failures else "",
        "gave_way": watchdog.holding.gave_way,
    }
