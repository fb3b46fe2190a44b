"""The figures of a run, taken from its bag alone: nothing here asks the parts that are judged."""

from itertools import pairwise

import numpy as np

from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
from vla_runtime.toolchain.run_log import Motion, RunLog

PERIOD_S = 0.02
BRAKE_RESENT_S = WATCHDOG_TABLE.load({}).stream_deadline_s
"""How long the watchdog re-sends the brake at the end of a plan, with that plan's id, before the fallback begins."""
ANSWER_DEADLINE_MS = 1e3 * WATCHDOG_TABLE.load({}).answer_deadline_s
NOT_COMPUTED = {"wait", "observation_age", "total"}
"""What `policy/latency` carries besides the policy's own stages."""


def stream_figures(commands: list[Motion]) -> dict[str, float]:
    """Rate, period error and largest gap of the command stream, by the times at which DDS received it.

    Returns:
        command_rate_hz, period_error_p99_ms (of |period - 20 ms|), max_gap_ms, ticks_share (of those expected).
    """
    received = np.array([command.received for command in commands])
    if len(received) < 3:
        return {"command_rate_hz": 0.0, "period_error_p99_ms": 0.0, "max_gap_ms": 0.0, "ticks_share": 0.0}
    periods = np.diff(received)
    span = received[-1] - received[0]
    return {
        "command_rate_hz": len(periods) / span,
        "period_error_p99_ms": float(np.percentile(np.abs(periods - PERIOD_S), 99)) * 1e3,
        "max_gap_ms": float(periods.max()) * 1e3,
        "ticks_share": len(periods) / round(span / PERIOD_S),
    }


def elapsed_executed(commands: list[Motion], chunks: list[Motion]) -> int:
    """Count commands that drive a waypoint whose time has passed.

    Either nothing of the message is left when it arrives (its last point lies in the past), or it follows a plan whose
    last waypoint (observation stamp + (H - 1) dt) lies before the message's stamp by more than ``BRAKE_RESENT_S``:
    until then, what is left of such a message is the brake after the last waypoint. A message that merely arrives late
    executes nothing that has elapsed: the controller samples it at the present instant.
    """
    ends = {chunk.plan_id: chunk.stamp + chunk.times[-1] for chunk in chunks}
    over = sum(command.received > command.stamp + command.times[-1] for command in commands)
    used_up = sum(
        command.stamp > ends[command.plan_id] + BRAKE_RESENT_S for command in commands if command.plan_id in ends
    )
    return int(over + used_up)


def message_faults(commands: list[Motion]) -> int:
    """Count messages that break the form: not at rest at the end, times not increasing, or not finite."""
    faults = 0
    for command in commands:
        good = (
            command.times[0] == 0.0
            and np.all(np.diff(command.times) > 0)
            and np.all(np.isfinite(command.positions))
            and np.all(np.isfinite(command.velocities))
            and np.all(command.velocities[-1] == 0.0)
        )
        faults += not good
    return int(faults)


def limit_violations(commands: list[Motion], limits) -> int:
    """Count steps between consecutive commands that exceed a joint's velocity limit times the time between them.

    Args:
        commands: in order of arrival.
        limits: vla_runtime.control.limits.Limits of the robot.
    """
    order = None
    count = 0
    for before, after in pairwise(commands):
        if order is None:
            order = [after.joint_names.index(name) for name in limits.joint_names]
        span = after.stamp - before.stamp
        step = np.abs(after.positions[0] - before.positions[0])[order]
        outside = (after.positions[0][order] < limits.lower - 1e-6) | (after.positions[0][order] > limits.upper + 1e-6)
        too_far = step > limits.velocity * span * 1.001 + 1e-6
        count += int(np.any(outside | too_far))
    return count


def time_in_state(run: RunLog) -> dict[str, float]:
    """Seconds that the watchdog spent in each state."""
    spent: dict[str, float] = {}
    ends = [status.received for status in run.watchdog[1:]] + [run.duration]
    for status, end in zip(run.watchdog, ends):
        spent[status.state] = spent.get(status.state, 0.0) + max(end - status.received, 0.0)
    return spent


def transitions(run: RunLog) -> list[tuple[float, str, str]]:
    """Changes of the watchdog's state: (seconds, state, cause)."""
    changes: list[tuple[float, str, str]] = []
    for status in run.watchdog:
        if not changes or changes[-1][1] != status.state:
            changes.append((status.received, status.state, status.values.get("cause", "")))
    return changes


def inference_ms(run: RunLog) -> dict[str, float]:
    """Percentiles of the time that computing a chunk takes, all stages together, in ms; waiting is left out."""
    totals = [sum(ms for stage, ms in stages.items() if stage not in NOT_COMPUTED) for _, stages in run.latency]
    if not totals:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    p50, p95, p99 = np.percentile(totals, [50, 95, 99])
    return {"p50": float(p50), "p95": float(p95), "p99": float(p99), "max": float(max(totals))}


def answers(run: RunLog) -> dict[str, float | int | str]:
    """How many answers came later after the arrival of their request than the watchdog waits, and what took longest.

    Returns:
        count, late, deadline_ms, and the slowest stage of the computation with its p99: slowest_stage, slowest_p99_ms.
        Zeros and "" where there was no answer. How long the computation took in all says :func:`inference_ms`.
    """
    totals = [stages["total"] for _, stages in run.latency if "total" in stages]
    stages: dict[str, list[float]] = {}
    for _, one in run.latency:
        for stage in one.keys() - NOT_COMPUTED:
            stages.setdefault(stage, []).append(one[stage])
    p99 = {stage: float(np.percentile(values, 99)) for stage, values in stages.items()}
    slowest = max(p99, key=p99.get, default="")
    return {
        "count": len(totals),
        "late": sum(total > ANSWER_DEADLINE_MS for total in totals),
        "deadline_ms": ANSWER_DEADLINE_MS,
        "slowest_stage": slowest,
        "slowest_p99_ms": p99.get(slowest, 0.0),
    }


def deadline_misses(run: RunLog) -> int:
    """Answers that were due and did not come in time: how often the watchdog left NOMINAL for COASTING."""
    states = [state for _, state, _ in transitions(run)]
    return sum(state == "COASTING" for state in states)
