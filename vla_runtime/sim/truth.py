"""What really happened, and whether the commands were right by it: the five promises as figures.

Nothing here asks the watchdog for its reasons: the onset of a silence is the instant at which the last sound message
was sent, known only to the simulated world.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.control.watchdog_states import Command, State
from vla_runtime.sim.command_checker import CommandChecker, Violation

PERIODS_ALLOWED = 2  # from a deadline to the fallback's first command
_EPS_S = 1e-6
_POLICY = (State.NOMINAL, State.COASTING)


@dataclass(frozen=True)
class Switch:
    """One fallback that a silence was the reason for.

    Attributes:
        at: steady seconds of the fallback's first command.
        stage: the silence whose deadline passed first.
        after_deadline_s: from that deadline to the command.
        after_onset_s: from the beginning of the silence to the command.
    """

    at: float
    stage: str
    after_deadline_s: float
    after_onset_s: float


class Truth:
    """Keeps the onsets of silences and judges every command."""

    def __init__(self, limits: Limits, settings: WatchdogSettings, period_s: float) -> None:
        self._limits, self._settings, self._period_s = limits, settings, period_s
        self.checker = CommandChecker(limits)
        self.switches: list[Switch] = []
        self.states: Counter[str] = Counter()  # ticks in each
        self.unfounded = 0  # fallbacks for which the world knows no reason
        self._armed = False
        self._plan_id = self._status = ""
        self._joints_at = self._ready_at = self._planned_at = self._planned_surely_at = 0.0
        self._open: OrderedDict[str, float] = OrderedDict()
        self._observed: OrderedDict[str, float] = OrderedDict()

    @property
    def violations(self) -> list[Violation]:
        """All that was wrong so far."""
        return self.checker.violations

    def watchdog_started(self) -> None:
        """A new watchdog: it has to earn the arm anew, and remembers nothing."""
        self._armed = False
        self.checker.forget()
        self._open.clear()

    # What was sent, soundly

    def joints_sent(self, now: float) -> None:
        """A sound joint state left the robot."""
        self._joints_at = now

    def heartbeat_sent(self, now: float, status: str) -> None:
        """A heartbeat left the policy."""
        self._status = status
        if status == "ready":
            self._ready_at = now

    def requested(self, now: float, request_id: str) -> None:
        """A request left the executor; a new epoch waits for nothing that the old one asked."""
        epoch = request_id.split(":")[0]
        for other in [name for name in self._open if name.split(":")[0] != epoch]:
            del self._open[other]
        self._open.setdefault(request_id, now)

    def answered(self, now: float, request_id: str, t0: float) -> None:
        """An answer arrived: whatever was asked up to it waits no more."""
        self._observed.setdefault(request_id, min(t0, now))
        while len(self._observed) > 200:
            self._observed.popitem(last=False)
        if request_id in self._open:
            while self._open and self._open.popitem(last=False)[0] != request_id:
                pass

    def planned_arrived(self, now: float, stamp: float) -> None:
        """A sound planned trajectory arrived; one that comes too late to be used does not count."""
        spare = self._settings.stream_deadline_s - (now - stamp)
        if spare >= 0.0:
            self._planned_at = stamp
        if spare >= self._period_s:  # in time whatever the phase of the watchdog's ticks
            self._planned_surely_at = stamp

    # Judgement

    def onsets(self, plan_id: str) -> dict[str, tuple[float, float]]:
        """Return, by stage, when the silence began and its deadline, seconds."""
        settings = self._settings
        found = {
            "stream": (self._planned_at, settings.stream_deadline_s),
            "joints": (self._joints_at, settings.joint_state_deadline_s),
            "heartbeat": (self._ready_at, settings.policy_deadline_s),
        }
        if self._open:
            found["answer"] = (next(iter(self._open.values())), settings.policy_deadline_s)
        if plan_id in self._observed:
            found["observation"] = (self._observed[plan_id], settings.max_observation_age_s)
        return found

    def commanded(self, now: float, command: Command, measured: JointSample | None) -> None:
        """Judge one tick of the watchdog; ``measured``: the newest joint state that has arrived."""
        self.states[str(command.state)] += 1
        trajectory = command.trajectory
        due = self._armed and command.state is not State.INACTIVE
        if trajectory is not None and not self._armed:
            self._first(now, trajectory, measured)
            self._armed = True
        jerk_limited = command.state in (State.HOLD, State.FAULT, State.FALLBACK)
        self.checker.check(now, trajectory, due, jerk_limited)
        change = command.transition
        if command.in_command == "policy":
            self._deadlines_kept(now, trajectory)
        elif change is not None and change.target is State.FALLBACK and change.source in _POLICY:
            self._switched(now, self._plan_id)
        self._plan_id = trajectory.plan_id if trajectory is not None else ""

    def _first(self, now: float, trajectory: Trajectory, measured: JointSample | None) -> None:
        if measured is None:
            self.checker.note(now, "first command", "before any joint state")
            return
        # A gripper is stepped, and measured wider than commanded where it holds something (Gate.near).
        step = np.where(self._limits.discrete, 0.0, np.abs(trajectory.positions[0] - measured.position))
        if (step > self._limits.velocity * self._period_s).any():
            self.checker.note(now, "first command", f"{step.max():.4f} rad away from the arm")

    def _deadlines_kept(self, now: float, trajectory: Trajectory) -> None:
        allowed = PERIODS_ALLOWED * self._period_s + _EPS_S
        for stage, (onset, deadline) in self.onsets(trajectory.plan_id).items():
            if now - onset > deadline + allowed:
                text = f"{stage} silent for {now - onset:.3f} s (limit {deadline} s), and the policy drives"
                self.checker.note(now, "deadline", text)

    def _switched(self, now: float, plan_id: str) -> None:
        """The fallback has taken the arm from the policy: note why, by the world's own knowledge."""
        onsets = self.onsets(plan_id)
        late = {stage: now - onset - deadline for stage, (onset, deadline) in onsets.items()}
        stage = max(late, key=lambda name: late[name])
        if late[stage] > 0.0:
            self.switches.append(Switch(now, stage, late[stage], now - onsets[stage][0]))
            return
        # A sound message may be lost to the watchdog, up to one period long, when an unsound one follows at its heels.
        surely = now - self._planned_surely_at - self._settings.stream_deadline_s
        founded = late["joints"] > -self._period_s or surely > 0.0 or self._status.startswith("error")
        self.unfounded += not founded
