"""Executor, watchdog, a scripted policy and an ideal arm on simulated time: no threads, no sleep, no ROS.

Events happen in the order of their times, as messages would between processes: each tick has its phase, each message
its delay, each stamp the clock of the moment. The world knows the truth (what was sent, when, and whether it was
sound) and judges every command by it, without asking the watchdog why it did what it did.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.limits import Limits
from vla_runtime.control.request import PlanRequest
from vla_runtime.control.standing import where_it_stands
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import WatchdogSettings, watchdog_settings
from vla_runtime.control.watchdog_states import Command, State
from vla_runtime.nodes.clock import NANO, StampClock
from vla_runtime.sim.scripted_policy import ScriptedPolicy, SmoothPath
from vla_runtime.sim.truth import Truth

PERIOD_S = 0.02
DELAY_S = 0.0005  # of a message between two processes on one machine
_EPOCH_NS = 1_790_000_000 * NANO  # ROS time when the world begins


class ControlWorld:
    """All parts together; the attributes are the screws that faults turn.

    ``settings``: of the watchdog; ``executor``: values of the executor's parameters, others than this world's own.

    Attributes:
        joints_on: joint states leave the robot.
        joint_noise: a change to every joint sample before it leaves, or None.
        executor_on: the executor's process runs.
        planned_change: a change to every planned trajectory on its way, or None (None as its result: it is lost).
        planned_delay_s: added to the way of planned trajectories.
        lose_requests, lose_answers: messages to the policy, to the executor are lost.
        copies: how often each answer, planned trajectory and request is delivered.
        clock_s: the ROS clock minus the steady clock; faults change it.
        pushed: (n,) rad (or 0) added to what is measured.
    """

    def __init__(
        self,
        seed: int | Sequence[int],
        limits: Limits,
        settings: WatchdogSettings | None = None,
        executor: Mapping[str, Any] | None = None,
    ) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.limits = limits
        self.settings = settings or watchdog_settings(recover_ticks=5, recover_plans=1)
        self.path = SmoothPath(limits, rng)
        dt = float(rng.choice([0.02, 1.0 / 30.0, 0.05]))
        self.policy = ScriptedPolicy(limits, self.path, rng, dt, round(1.0 / dt), float(rng.uniform(0.05, 0.14)))
        blend = str(rng.choice(["crossfade", "cut", "rtc"]))
        self.executor_settings = executor_settings(**{"k": 10, "blend": blend, **(executor or {})})
        self.truth = Truth(limits, self.settings, self.settings.period_s)
        self.now = 0.0
        self.joints_on = self.executor_on = True
        self.joint_change: Callable[[JointSample], JointSample] | None = None
        self.planned_change: Callable[[Trajectory], Trajectory | None] | None = None
        self.planned_delay_s = 0.0
        self.lose_requests = self.lose_answers = False
        self.copies = 1
        self.clock_s = 0.0
        self._clock = StampClock(lambda: _EPOCH_NS + round((self.now + self.clock_s) * NANO), lambda: self.now)
        self.pushed: np.ndarray | float = 0.0
        self.ticks = 0
        self.sound_at = 0.0  # when the last fault ends that is known of
        self._events: list[tuple[float, int, Callable[..., None], tuple]] = []
        self._order = itertools.count()
        self._epoch = itertools.count()
        self._home = self.path(np.zeros(1))[0]
        self._joints_seen: JointSample | None = None  # by watchdog and executor alike
        self._joints_stamp: float | None = None
        self._planned_seen: Trajectory | None = None
        self._command: Trajectory | None = None  # what the arm follows
        self._seen_command: Trajectory | None = None  # by the executor
        self._policy_drives = self._driven = False
        self._judged = True
        self.start_executor()
        self.start_watchdog()
        self._at(0.0, self._robot)
        self._at(0.0, self._heartbeat)
        self._at(float(rng.uniform(0.0, self.executor_settings.period_s)), self._executor_tick)
        self._at(float(rng.uniform(0.0, self.settings.period_s)), self._watchdog_tick)

    # Processes

    def start_executor(self) -> None:
        """Start the executor's process anew: another epoch, nothing remembered."""
        self.executor = Executor(self.executor_settings, self.limits, f"{next(self._epoch):x}")
        self._seen_command, self._policy_drives = None, False

    def start_watchdog(self) -> None:
        """Start the watchdog's process anew and activate it; the arm goes on with the last message."""
        self.watchdog = Watchdog(self.settings, self.limits)
        self.watchdog.activate(self.now)
        self._planned_seen = None
        self.truth.watchdog_started()

    @property
    def state(self) -> State:
        """The watchdog's state."""
        return self.watchdog.state

    def arm(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Return position and velocity (n,), (n,) of the arm at ``t``: it follows the last message ideally."""
        if self._command is None:
            return self._home, np.zeros(len(self.limits))
        return self._command.sample(t)

    # Time

    def run(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, call, arguments = heapq.heappop(self._events)
            call(*arguments)
        self.now = end

    def run_until(self, condition: Callable[[], bool], at_most_s: float) -> bool:
        """Let time pass until ``condition`` holds, at most ``at_most_s``; return whether it does."""
        end = self.now + at_most_s
        while not condition():
            if self.now >= end:
                return False
            self.run(PERIOD_S)
        return True

    def later(self, delay_s: float, call: Callable[..., None], *arguments) -> None:
        """Let ``call(*arguments)`` happen ``delay_s`` from now."""
        self._at(self.now + delay_s, call, *arguments)

    def _at(self, t: float, call: Callable[..., None], *arguments) -> None:
        heapq.heappush(self._events, (t, next(self._order), call, arguments))

    def _stamp(self, t: float) -> float:
        return t + self.clock_s

    def _unstamp(self, stamp: float) -> float:
        """Return a stamp as steady time, as the nodes read it: after a jump, what was on its way may look odd."""
        return self._clock.to_steady(_EPOCH_NS + round(stamp * NANO))

    # Robot

    def _robot(self) -> None:
        self.later(0.01, self._robot)
        if not self.joints_on:
            return
        position, velocity = self.arm(self.now)
        sample = JointSample(self._stamp(self.now), position + self.pushed, velocity)
        if self.joint_change is None:
            self.truth.joints_sent(self.now)
        else:
            sample = self.joint_change(sample)
        self.later(DELAY_S, self._joints_arrive, sample)

    def _joints_arrive(self, sample: JointSample) -> None:
        if sample.t == self._joints_stamp:
            return  # the same message again is no news, whatever the clock has done since (nodes/joint_map.py)
        self._joints_stamp = sample.t
        self._joints_seen = replace(sample, t=self._unstamp(sample.t))

    # Policy

    def _heartbeat(self) -> None:
        self.later(0.05, self._heartbeat)
        if not self.policy.dead:
            self.truth.heartbeat_sent(self.now, self.policy.status)
            self.later(DELAY_S, self._heartbeat_arrives, self.policy.status)

    def _heartbeat_arrives(self, status: str) -> None:
        self.watchdog.saw_heartbeat(self.now, status)

    def _request_arrives(self, request: PlanRequest, lost: bool) -> None:
        self.watchdog.saw_request(self.now, request.request_id)
        policy = self.policy
        if lost or policy.hung or policy.dead or policy.status != "ready":
            return
        t0, seen = policy.observe(self.now), self.arm(self.now)[0]
        self.later(policy.latency(), self._answer, t0, self._stamp(t0), seen, request.request_id)

    def _answer(self, t0: float, t0_stamp: float, seen: np.ndarray, request_id: str) -> None:
        if self.policy.dead or self.policy.hung:
            return
        chunk = self.policy.chunk(t0, seen, request_id)
        for copy in range(self.copies):
            self.later(DELAY_S * (1 + copy), self._answer_arrives, chunk, t0_stamp - t0, self.lose_answers)

    def _answer_arrives(self, chunk: ActionChunk, clock_then_s: float, lost: bool) -> None:
        if lost:  # on its way to the executor and to the watchdog alike
            return
        chunk = replace(chunk, t0=self._unstamp(chunk.t0 + clock_then_s))
        self.truth.answered(self.now, chunk.request_id, chunk.t0)
        self.watchdog.saw_answer(self.now, chunk.request_id, chunk.t0)
        if self.executor_on:
            self.executor.offer(self.now, replace(chunk, received=self.now))

    # Executor

    def _executor_tick(self) -> None:
        period_s = self.executor_settings.period_s
        self._at(self.now + period_s, self._executor_tick)
        if not self.executor_on:
            return
        if not self._driven:
            self._seen_command = where_it_stands(self.now, self._seen_command, self._joints_seen, self.limits, period_s)
        plans = self.executor.plans(self._judged)
        try:
            tick = self.executor.tick(self.now, self._joints_seen, self._seen_command, self._policy_drives, plans)
        except Exception as error:  # the process would be gone: that is a violation, and the next one starts
            self.truth.checker.note(self.now, "executor died", f"{type(error).__name__}: {error}")
            self.start_executor()
            return
        if tick.request is not None:
            for copy in range(self.copies):
                self.truth.requested(self.now, tick.request.request_id)
                self.later(DELAY_S * (1 + copy), self._request_arrives, tick.request, self.lose_requests or copy > 0)
        if tick.planned is None:
            return
        planned = replace(tick.planned, start=self._stamp(tick.planned.start), brake_from=None)
        if self.planned_change is None:
            self.deliver_planned(planned, self.now)
            return
        changed = self.planned_change(planned)
        if changed is not None:
            self.deliver_planned(changed, None)

    def deliver_planned(self, planned: Trajectory, sent: float | None) -> None:
        """Send a planned trajectory on its way to the watchdog.

        Its start is a ROS stamp; ``sent``: the steady time of that, None if the trajectory is not sound.
        """
        for copy in range(self.copies):
            self.later(DELAY_S * (1 + copy) + self.planned_delay_s, self._planned_arrives, planned, sent)

    def _planned_arrives(self, planned: Trajectory, sent: float | None) -> None:
        self._planned_seen = replace(planned, start=self._unstamp(planned.start))
        if sent is not None:
            self.truth.planned_arrived(self.now, sent)

    # Watchdog

    def _watchdog_tick(self) -> None:
        self._at(self.now + self.settings.period_s, self._watchdog_tick)
        self._clock.watch()
        self.ticks += 1
        planned, self._planned_seen = self._planned_seen, None
        try:
            command = self.watchdog.tick(self.now, self._joints_seen, planned)
        except Exception as error:
            self.truth.checker.note(self.now, "watchdog died", f"{type(error).__name__}: {error}")
            self.start_watchdog()
            return
        self.truth.commanded(self.now, command, self._joints_seen)
        if command.trajectory is not None:
            self._command = command.trajectory
        self.later(DELAY_S, self._command_arrives, command)

    def _command_arrives(self, command: Command) -> None:
        if command.trajectory is not None:
            self._seen_command = command.trajectory
        self._policy_drives, self._driven = command.in_command == "policy", command.in_command != "none"
        self._judged = command.in_command != "teleop"
        if command.flush and self.executor_on:
            self.executor.flush(str(command.state))
