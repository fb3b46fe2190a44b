"""The executor's tick: from the plans that arrived to the message that leaves, and the requests in between.

Everything is evaluated at absolute time, so a waypoint that has elapsed is never executed, whatever the latency. Each
tick starts exactly where the last trajectory is at that instant, so consecutive messages agree at the stamp. From
there the plan is followed inside the limits to the end of a short window, and then comes a stop. Where there is
nothing valid to say, nothing is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_runtime.control.acceptance import REASONS, Refusal, Rules, accept
from vla_runtime.control.brake import brake
from vla_runtime.control.chunk import ActionChunk, elapsed_steps
from vla_runtime.control.course import Navigator
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.finite import all_finite
from vla_runtime.control.limits import Limits
from vla_runtime.control.request import History, PlanRequest, prefix
from vla_runtime.control.resample import Grid, GridPlan, resample, smooth
from vla_runtime.control.schedule import DelayEstimate, KRange, Schedule, k_range
from vla_runtime.control.trajectory import MIN_SPACING_S, JointSample, Trajectory
from vla_runtime.control.triggers import Triggers

GRID_PHASE = 0.9
"""Where the points of the control grid lie after a tick that is in time, as a share of the period. The tick may come
late (by 14 ms of 20) and its next point is still far enough ahead to be sent; and the watchdog, which speaks in between
(``WATCHDOG_PHASE``), has not passed the point at which a new plan takes over: it goes on without a seam."""
UNJUDGED_TICKS = 5
"""While an operator drives, the watchdog judges no plan, and one tick in so many plans: people still see what the
policy would do. To start from somebody else's command costs twice as much as to go on with one's own."""
_MOST_CAUSES = 32
"""Texts that come from outside are counted one by one only up to this many: memory stays bounded."""


@dataclass(frozen=True)
class Tick:
    """What one tick says: the trajectory to publish, the request to send; None for nothing."""

    planned: Trajectory | None
    request: PlanRequest | None


@dataclass(frozen=True, eq=False)
class _State:
    """Where the arm is being driven at an instant, and which trajectory says so (None: the measured state)."""

    position: np.ndarray
    velocity: np.ndarray
    source: Trajectory | None


class Executor:
    """Turns chunks into a stream of trajectories. One thread calls it; it reads no clock and keeps no thread.

    ``epoch``: random text, new at every start of the node, that makes request ids unique; ``due``: steady seconds at
    which any one tick is due (None: the first comes in time), for the grid.
    """

    def __init__(self, settings: ExecutorSettings, limits: Limits, epoch: str = "0", due: float | None = None):
        self.limits = limits
        self._due = due
        self._schedule = Schedule(epoch, settings.period_s)
        self._triggers = Triggers()
        self._delay = DelayEstimate(
            settings.initial_delay_s, settings.delay_window, settings.warmup_answers, settings.idle_gap_s
        )
        self._history = History(max(settings.prefix_history_s, 0.5), settings.period_s)
        self._grid: Grid | None = None
        self._last_tick = -math.inf
        self._navigator = Navigator(settings, limits)
        self._last: Trajectory | None = None  # what was said last
        self._driving: Trajectory | None = None  # what the arm was following at the last tick
        self._measured: np.ndarray | None = None
        self._last_t0: float | None = None
        self._range: KRange | None = None
        self._dt = 0.0
        self._counts = {"ticks": 0, "planned": 0, "accepted": 0, "waypoints_dropped": 0, "plans_used_up": 0}
        self._refused = dict.fromkeys(REASONS, 0)
        self._silences: dict[str, int] = {}
        self._flushes: dict[str, int] = {}
        self._silent = ""
        self._last_refusal = ""
        self._apply(settings)

    # --- settings ------------------------------------------------------------------------------------------------

    def refuses(self, settings: ExecutorSettings) -> str | None:
        """Say why these settings cannot be taken now, or None: a K outside the safe range, with the range.

        A K that stays what it is does not hinder another change, though the delay has made it unsafe since.
        """
        chosen = (settings.k, settings.queue_threshold) != (self.settings.k, self.settings.queue_threshold)
        if chosen and settings.queue_threshold <= 0.0 and self._range is not None and settings.k not in self._range:
            return (
                f"k = {settings.k} is unsafe: with an inference delay of {self._delay.high * 1000:.0f} ms and this "
                f"policy's horizon the range is {self._range} ticks"
            )
        if settings.period_s != self.settings.period_s:
            return "period_s cannot be changed while the executor runs"
        return None

    def retune(self, settings: ExecutorSettings) -> None:
        """Take over new settings from the next tick on. Raises ``ValueError`` with the reason of :meth:`refuses`."""
        reason = self.refuses(settings)
        if reason:
            raise ValueError(reason)
        self._apply(settings)

    def _apply(self, settings: ExecutorSettings) -> None:
        self.settings = settings
        self._navigator.retune(settings)

    def flush(self, cause: str) -> None:
        """Forget the plans, the request in flight and what was said (deactivated, clock jumped, operator hold...)."""
        if cause not in self._flushes and len(self._flushes) >= _MOST_CAUSES:
            cause = "other"
        self._flushes[cause] = self._flushes.get(cause, 0) + 1
        self._navigator.clear()
        self._schedule.forget()
        self._delay.restarted()
        self._history.clear()
        self._last = self._driving = self._measured = self._last_t0 = None
        self._grid = None
        self._silent = ""

    # --- answers -------------------------------------------------------------------------------------------------

    def offer(self, now: float, chunk: ActionChunk) -> Refusal | None:
        """Take in an answer that arrived: None when its plan takes over, else why it is refused (whole)."""
        asked = self._schedule.answered(chunk.request_id)
        command = self._driving.sample(now)[0] if self._driving is not None else self._measured
        result = accept(now, chunk, asked, self._last_t0, command, self._rules(), self.limits)
        refused = isinstance(result, Refusal)
        if asked is not None:  # the stamp of a refused plan may be anything
            self._delay.answered(asked.sent, asked.sent if refused else chunk.t0, now)
        if refused:
            return self._refuse(result)
        plan = self._on_grid(now, chunk, result)
        if plan is None:
            return self._refuse(Refusal("elapsed", "the plan ends within the control period"))
        # The grid point at which the next tick's message goes on, if that tick comes in time.
        next_tick = max(now, self._last_tick + self.settings.period_s)
        first = plan.grid.at_or_after(next_tick + MIN_SPACING_S)
        self._navigator.take(plan, first, self._driving is not None and self._driving is self._last)
        self._last_t0, self._dt = chunk.t0, chunk.dt
        self._counts["accepted"] += 1
        self._counts["waypoints_dropped"] += elapsed_steps(max(0.0, now - chunk.t0), chunk.dt)
        self._range = k_range(self._delay.high, chunk.horizon, chunk.dt, self.settings.period_s)
        return None

    def _on_grid(self, now: float, chunk: ActionChunk, positions: np.ndarray) -> GridPlan | None:
        if self.settings.smoothing_s > 0.0:
            positions = smooth(positions, chunk.dt, self.settings.smoothing_s, ~self.limits.discrete)
            positions = np.clip(positions, self.limits.lower, self.limits.upper)
        return resample(chunk.request_id, min(chunk.t0, now), chunk.dt, positions, self._grid_at(now))

    def _refuse(self, refusal: Refusal) -> Refusal:
        self._refused[refusal.reason] += 1
        self._last_refusal = str(refusal)
        return refusal

    def _rules(self) -> Rules:
        s = self.settings
        lag = max(s.max_observation_lag_s, s.k * s.period_s)
        return Rules(s.max_plan_age_s, lag, s.future_tolerance_s, s.position_tolerance, s.max_speed_ratio, s.max_jump)

    # --- the tick ------------------------------------------------------------------------------------------------

    def note(self, trigger: str) -> None:
        """Something outside saw a reason to ask early ("vision", "verifier", "wrench")."""
        self._triggers.note(trigger)

    def plans(self, judged: bool) -> bool:
        """Say whether the next tick is to plan; ``judged``: a watchdog looks at what is planned."""
        return judged or self._counts["ticks"] % UNJUDGED_TICKS == 0

    def tick(
        self,
        now: float,
        joints: JointSample | None,
        command: Trajectory | None,
        in_command: bool,
        plans: bool = True,
    ) -> Tick:
        """One control period: what to publish at ``now`` and what to ask.

        ``joints``: the newest joint state; ``command``: the last trajectory seen on the controller's topic;
        ``in_command``: the watchdog lets the policy drive. In command, the executor goes on from what it said last;
        out of command, each plan starts from ``command`` at ``now``, and from the measured state (at rest) where there
        is no command yet. Without ``plans`` it only asks (see :meth:`plans`).
        """
        self._counts["ticks"] += 1
        self._last_tick = now
        self._grid_at(now)
        if joints is not None and not all_finite(joints.position):
            joints = None
        if joints is not None:
            self._measured = joints.position
        state = self._where(now, joints, command, in_command)
        if state is not None and state.source is not None:
            self._history.add(now, state.position)
        stale = joints is None or now - joints.t > self.settings.max_joint_age_s
        planned = self._plan(now, state) if plans and state is not None and not stale else None
        if plans:
            self._speak("joint_state" if stale else "", planned)
        own = in_command and planned is not None
        self._driving = planned if own else (state.source if state is not None else None)
        if planned is not None:
            self._last = planned
        return Tick(planned, self._ask(now, joints, in_command))

    def _grid_at(self, now: float) -> Grid:
        """The grid; ticks fall between its points, so that jitter never makes one too close to be sent."""
        if self._grid is None:
            due, period_s = now if self._due is None else self._due, self.settings.period_s
            self._grid = Grid(due + GRID_PHASE * period_s, period_s)
        return self._grid

    def _where(
        self, now: float, joints: JointSample | None, command: Trajectory | None, in_command: bool
    ) -> _State | None:
        source = self._last if in_command and self._last is not None else command
        if source is not None:
            return _State(*source.sample(now), source)
        if joints is None:
            return None
        return _State(joints.position, np.zeros(len(self.limits)), None)

    def _plan(self, now: float, state: _State) -> Trajectory | None:
        grid, newest = self._grid, self._navigator.newest
        if newest is None:
            return None
        first = grid.at_or_after(now + MIN_SPACING_S)
        last = min(grid.at_or_before(now + self.settings.window_s), newest.last)
        if first > last:
            return None
        ours = state.source is not None and state.source is self._last
        stretch = self._navigator.stretch(now, state.position, state.velocity, first, last, ours)
        window, speeds = stretch.rows(first, last)
        stop = brake(window[-1], speeds[-1], stretch.course.acceleration, self.limits, self.settings.period_s)
        on_grid = grid.origin - now + grid.period * np.arange(first, last + 1)
        times = np.concatenate(([0.0], on_grid, on_grid[-1] + stop.times[1:]))
        positions = np.concatenate((state.position[None, :], window, stop.positions[1:]))
        velocities = np.concatenate((state.velocity[None, :], speeds, stop.velocities[1:]))
        velocities[-1] = 0.0
        return Trajectory(now, self.limits.joint_names, times, positions, velocities, newest.plan_id, last - first + 1)

    def _speak(self, hindered: str, planned: Trajectory | None) -> None:
        """Count what was said, and each silence once, by cause."""
        if planned is not None:
            self._counts["planned"] += 1
            self._silent = ""
            return
        cause = hindered or ("no_plan" if self._navigator.newest is None else "plan_used_up")
        if cause != self._silent:
            self._silences[cause] = self._silences.get(cause, 0) + 1
            self._counts["plans_used_up"] += cause == "plan_used_up"
        self._silent = cause

    # --- requests ------------------------------------------------------------------------------------------------

    @property
    def k(self) -> int:
        """The K in use: the parameter, or the nearest safe one where the delay has drifted and ``clamp_k`` is set."""
        if self._range is None or not self.settings.clamp_k:
            return self.settings.k
        return self._range.clamp(self.settings.k)

    def _ask(self, now: float, joints: JointSample | None, in_command: bool) -> PlanRequest | None:
        s = self.settings
        watched = joints if in_command else None
        for cause in self._triggers.fired(
            now, watched, self._history.at, s.mismatch, s.effort_spike, s.trigger_holdoff_s
        ):
            self._schedule.trigger(cause)
        newest = self._navigator.newest
        left = None if newest is None else max(0.0, (newest.end - now) / max(newest.end - newest.t0, 1e-9))
        cause = self._schedule.due(now, self.k, s.queue_threshold, left, s.request_timeout_s)
        if cause is None:
            return None
        if cause == "timeout":
            self._delay.restarted()
        times, positions = np.zeros(0), np.zeros((0, len(self.limits)))
        committed = 0
        if self._dt > 0.0 and self._driving is not None:
            follows = newest if self._driving is self._last and self._silent == "" else None
            times, positions = prefix(now, self._dt, self._history, self._driving, follows, s.prefix_history_s)
            delay_steps = elapsed_steps(self._delay.planning, self._dt)
            committed = min(delay_steps, int((times >= -1e-9).sum()))
        return PlanRequest(self._schedule.send(now, cause), now, cause, times, positions, committed)

    # --- figures -------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return counters and figures for diagnostics: plain values, and dicts of them by reason or percentile."""
        newest: GridPlan | None = self._navigator.newest
        unsafe = self._range is not None and self.settings.queue_threshold <= 0.0 and self.settings.k not in self._range
        return {
            **self._counts,
            "refused": dict(self._refused),
            "refused_total": sum(self._refused.values()),
            "last_refusal": self._last_refusal,
            **self._schedule.counts,
            "request_causes": dict(self._schedule.causes),
            "triggers": dict(self._triggers.counts),
            "mismatch": round(self._triggers.largest_mismatch, 4),
            "silences": dict(self._silences),
            "silent": self._silent,
            "flushes": dict(self._flushes),
            "plan": newest.plan_id if newest is not None else "",
            "blend": self.settings.blend,
            "k": self.k,
            "k_set": self.settings.k,
            "k_range": str(self._range) if self._range is not None else "unknown",
            "k_unsafe": unsafe,
            "delay_planning_ms": round(self._delay.planning * 1000.0, 1),
            "delay_ms": self._delay.summary_ms(),
            "delays_left_out": self._delay.left_out,
            "seam_jump": self._navigator.seams.summary(1.0, 5),
        }
