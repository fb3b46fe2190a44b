"""What would have happened: executor and watchdog on simulated time, on the inputs of a recorded run.

The arm follows every command at once (``follows``), or does what it did then (``recorded``). Nothing here reads a
clock: the same arguments give the same run.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.fallback import installed_planners
from vla_runtime.control.latency import Miss
from vla_runtime.control.limits import Limits
from vla_runtime.control.request import PlanRequest
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog import WATCHDOG_PHASE, Watchdog
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.control.watchdog_states import Command, Transition
from vla_runtime.toolchain.replay.answers import Answers
from vla_runtime.toolchain.replay.recording import Series

HEARTBEAT_S = 0.05
ARMS = ("follows", "recorded")


@dataclass
class Rehearsed:
    """What came out. Times are seconds from the bag's first message."""

    commands: list[Trajectory] = field(default_factory=list)
    planned: list[Trajectory] = field(default_factory=list)
    requests: list[PlanRequest] = field(default_factory=list)
    answers: list[ActionChunk] = field(default_factory=list)
    refused: Counter = field(default_factory=Counter)
    transitions: list[Transition] = field(default_factory=list)
    decisions: list[Command] = field(default_factory=list)
    joints: list[JointSample] = field(default_factory=list)
    time_in_state_s: Counter = field(default_factory=Counter)
    missed: dict[str, int] = field(default_factory=dict)
    misses: list[Miss] = field(default_factory=list)
    executor: dict[str, Any] = field(default_factory=dict)
    limit_excess: float = 0.0
    largest_step: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return the figures by which two runs are compared."""
        latency = [a.received - a.t0 for a in self.answers]
        return {
            "ticks": len(self.decisions),
            "commands": len(self.commands),
            "requests": len(self.requests),
            "answers": len(self.answers),
            "plans_refused": dict(self.refused),
            "observation_to_answer_ms": _percentiles(1e3 * np.array(latency)),
            "k": self.executor.get("k"),
            "k_range": self.executor.get("k_range"),
            "seam_jump": self.executor.get("seam_jump"),
            "misses": self.missed,
            "missed": [f"{miss.t:.3f} s {miss.stage}: {miss.cause}" for miss in self.misses],
            "time_in_state_s": {state: round(t, 3) for state, t in self.time_in_state_s.items()},
            "transitions": [f"{t.at:.3f} s {t.source} -> {t.target}: {t.cause}" for t in self.transitions],
            "speed_over_limit": round(self.limit_excess, 6),
            "discontinuity_rad": round(self.largest_step, 6),
        }


def rehearse(
    limits: Limits,
    executor_settings: ExecutorSettings,
    watchdog_settings: WatchdogSettings,
    measured: Series,
    answers: Answers,
    duration: float,
    arm: str = "follows",
    progress: Callable[[float], None] = lambda t: None,
) -> Rehearsed:
    """Run both cores for ``duration`` seconds.

    ``measured``: the recorded joint states, in the order of ``limits``; ``arm``: ``follows`` or ``recorded``.
    """
    executor = Executor(executor_settings, limits, epoch="rehearsal")
    watchdog = Watchdog(watchdog_settings, limits, installed_planners())
    period = executor_settings.period_s
    out = Rehearsed()
    pending: list[ActionChunk] = []
    command: Trajectory | None = None
    in_command = False
    start = float(measured.times[0]) + 1e-6
    watchdog.activate(start)
    beat = start
    ticks = int(max(duration - start, 0.0) / period)
    for i in range(ticks):
        now = start + i * period
        progress(now)
        joints = _measure(now, measured, command if arm == "follows" else None)
        out.joints.append(joints)
        for chunk in [chunk for chunk in pending if chunk.received <= now]:
            pending.remove(chunk)
            out.answers.append(chunk)
            refusal = executor.offer(now, chunk)
            if refusal is not None:
                out.refused[refusal.reason] += 1
            watchdog.saw_answer(chunk.received, chunk.request_id, chunk.t0)
        tick = executor.tick(now, joints, command, in_command)
        if tick.planned is not None:
            out.planned.append(tick.planned)
        if tick.request is not None:
            out.requests.append(tick.request)
            watchdog.saw_request(now, tick.request.request_id)
            answer = answers.ask(now, tick.request)
            if answer is not None:
                pending.append(answer)
        later = now + WATCHDOG_PHASE * period
        while beat <= later:
            watchdog.saw_heartbeat(beat, "ready")
            beat += HEARTBEAT_S
        decision = watchdog.tick(later, joints, tick.planned)
        _note(out, decision, later, period, limits, command)
        if in_command and decision.in_command != "policy":
            executor.flush(f"command left the policy: {decision.state}")
        in_command = decision.in_command == "policy"
        command = decision.trajectory or command
    out.missed, out.misses = dict(watchdog.missed), list(watchdog.misses)
    out.executor = executor.snapshot()
    return out


def _measure(now: float, measured: Series, command: Trajectory | None) -> JointSample:
    if command is not None:
        position, velocity = command.sample(now)
        return JointSample(now, position, velocity)
    i = int(np.searchsorted(measured.times, now, side="right")) - 1
    before = max(i - 1, 0)
    gap = max(float(measured.times[i] - measured.times[before]), 1e-3)
    return JointSample(float(measured.times[i]), measured.rows[i], (measured.rows[i] - measured.rows[before]) / gap)


def _note(
    out: Rehearsed, decision: Command, now: float, period: float, limits: Limits, last: Trajectory | None
) -> None:
    out.decisions.append(decision)
    out.time_in_state_s[str(decision.state)] += period
    if decision.transition is not None:
        out.transitions.append(decision.transition)
    if decision.trajectory is None:
        return
    out.commands.append(decision.trajectory)
    if last is not None:
        was, will = last.sample(now)[0], decision.trajectory.sample(now)[0]
        out.largest_step = max(out.largest_step, float(np.abs(will - was).max()))
    speed = np.abs(decision.trajectory.velocities) / limits.velocity
    out.limit_excess = max(out.limit_excess, float(speed.max()) - 1.0)


def _percentiles(values: np.ndarray) -> dict[str, float]:
    if not len(values):
        return {}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2), "p99": round(float(p99), 2),
            "max": round(float(values.max()), 2)}  # fmt: skip
