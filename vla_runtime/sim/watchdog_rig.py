"""A watchdog on simulated time, fed by hand: what its tests turn one screw at a time.

The stream comes from a scripted planner that goes from one random goal to the next inside the limits, as an executor
would: in command it goes on from its own plan, out of command it starts from the last command. The arm follows
ideally unless it is pushed.
"""

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.motion import MotionState, move
from vla_runtime.control.reissue import rebased, windowed
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import WatchdogSettings, watchdog_settings
from vla_runtime.control.watchdog_states import IN_COMMAND, Command
from vla_runtime.sim.command_checker import CommandChecker

PERIOD_S = 0.02


def six_joints() -> Limits:
    """Return limits like those of a small arm with a gripper (the last joint, discrete)."""
    names = ("pan", "lift", "elbow", "flex", "roll", "gripper")
    one = np.ones(6)
    return Limits(names, -2.0 * one, 2.0 * one, 3.0 * one, 10.0 * one, 200.0 * one, np.array([False] * 5 + [True]))


class ScriptedPlanner:
    """Goes from goal to goal: a stand-in for the executor with nothing of its code."""

    def __init__(self, limits: Limits, seed: int = 0, speed: float = 0.5) -> None:
        self._limits = limits
        self._rng = np.random.default_rng(seed)
        self._speed = speed
        self._motion: Trajectory | None = None

    def planned(
        self, now: float, plan_id: str, command: Trajectory | None, measured: np.ndarray, in_command: bool
    ) -> Trajectory:
        """Return the planned trajectory for ``now``."""
        own = self._motion
        if own is None or not in_command:
            own = command
        if self._motion is None or not in_command or now >= self._motion.end:
            self._motion = self._onward(now, own, measured)
        self._motion = rebased(self._motion, now)
        made = windowed(self._motion, 0.2, self._limits, 0.02)
        return Trajectory(now, made.joint_names, made.times, made.positions, made.velocities, plan_id)

    def _onward(self, now: float, own: Trajectory | None, measured: np.ndarray) -> Trajectory:
        limits, n = self._limits, len(self._limits)
        state = MotionState(measured, np.zeros(n), np.zeros(n))
        if own is not None:
            position, velocity = own.sample(now)
            acceleration = np.clip(own.acceleration(now), -limits.acceleration, limits.acceleration)
            state = MotionState(position, velocity, acceleration)
        goal = self._rng.uniform(0.8 * limits.lower, 0.8 * limits.upper)
        fraction = self._speed
        way = move(state, goal, limits.velocity * fraction, limits.acceleration * fraction, limits.jerk * fraction)
        return Trajectory(now, limits.joint_names, way.times, way.positions, way.velocities)


class WatchdogRig:
    """A watchdog, a scripted stream, a policy that answers every ten ticks, an arm, and a checker.

    Attributes to turn: ``stream``, ``answers``, ``requests``, ``joints`` (bool: does it come?), ``heartbeat`` (text,
    "" for none), ``frozen_t0`` (an observation time that no longer moves), ``pushed`` ((n,) rad added to what is
    measured).
    """

    def __init__(
        self, settings: WatchdogSettings | None = None, limits: Limits | None = None, seed: int = 0, **watchdog
    ) -> None:
        self.limits = limits or six_joints()
        self.watchdog = Watchdog(settings or watchdog_settings(), self.limits, **watchdog)
        self.checker = CommandChecker(self.limits)
        self.planner = ScriptedPlanner(self.limits, seed)
        self.now, self.ticks = 0.0, 0
        self.stream = self.answers = self.requests = self.joints = True
        self.heartbeat = "ready"
        self.frozen_t0: float | None = None
        self.pushed = np.zeros(len(self.limits))
        self.command = Command(None, self.watchdog.state, "", "none")
        self.log: list[tuple[float, Command]] = []
        self._last: Trajectory | None = None
        self._home = np.zeros(len(self.limits))
        self._sample: JointSample | None = None
        self._plan, self._asked = "", 0

    def measured(self) -> np.ndarray:
        """Return where the arm is now, (n,) rad."""
        position = self._home if self._last is None else self._last.sample(self.now)[0]
        return position + self.pushed

    def planned(self) -> Trajectory:
        """Return what the scripted planner would send now."""
        in_command = IN_COMMAND[self.watchdog.state] == "policy"
        return self.planner.planned(self.now, self._plan, self._last, self.measured(), in_command)

    def tick(self, planned: Trajectory | None = None) -> Command:
        """Let one control period pass; ``planned`` instead of what the scripted planner would send."""
        self.ticks += 1
        self.now = self.ticks * PERIOD_S
        self._policy()
        if self.joints:
            velocity = np.zeros(len(self.limits)) if self._last is None else self._last.sample(self.now)[1]
            self._sample = JointSample(self.now, self.measured(), velocity)
        if planned is None and self.stream and self._plan:
            planned = self.planned()
        armed = self._last is not None and self.watchdog.state != "INACTIVE"
        self.command = self.watchdog.tick(self.now, self._sample, planned)
        self.checker.check(self.now, self.command.trajectory, due=armed)
        self._last = self.command.trajectory or self._last
        self.log.append((self.now, self.command))
        return self.command

    def run(self, seconds: float) -> Command:
        """Let ``seconds`` pass; return the last command."""
        for _ in range(round(seconds / PERIOD_S)):
            self.tick()
        return self.command

    def run_until(self, state: str, at_most_s: float = 10.0) -> float:
        """Let time pass until the watchdog is in ``state``; return how long that took, seconds."""
        begin = self.now
        while self.command.state != state:
            self.tick()
            if self.now - begin > at_most_s:
                raise AssertionError(f"still {self.command.state} ({self.command.cause}) after {at_most_s} s")
        return self.now - begin

    def nominal(self) -> "WatchdogRig":
        """Activate and run until the policy has had the arm for half a second."""
        self.watchdog.activate(self.now)
        self.run_until("NOMINAL")
        self.run(0.5)
        return self

    def _policy(self) -> None:
        if self.heartbeat:
            self.watchdog.saw_heartbeat(self.now, self.heartbeat)
        if self.ticks % 10 == 1 and self.requests:
            self._asked += 1
            self.watchdog.saw_request(self.now, f"rig:{self._asked}")
        if self.ticks % 10 == 6 and self.answers and self._asked:
            self._plan = f"rig:{self._asked}"
            t0 = self.now - 0.1 if self.frozen_t0 is None else self.frozen_t0
            self.watchdog.saw_answer(self.now, self._plan, t0)
