"""What the arm is being driven along, and the shadow of what was last commanded.

Every change of driver starts from the shadow, so that position and velocity of the command are continuous whoever
has the arm.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vla_runtime.control.fallback import FallbackPlanner, Situation
from vla_runtime.control.gate import Gate, GateRefusal
from vla_runtime.control.limits import Limits
from vla_runtime.control.motion import MotionError, MotionState, move
from vla_runtime.control.reissue import joined, led, mixed, rebased, windowed
from vla_runtime.control.tracking import Tracker
from vla_runtime.control.trajectory import JointSample, Trajectory, at_rest
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.errors import brief

ABANDONED_S = 0.7  # another watchdog listens for so long before it commands (nodes/publishers.py)
_HISTORY = 8  # commands kept to know where the command was when a joint state was taken: 0.16 s
_SAME = 1e-6  # rad and rad/s: a planner's start that differs by less is the state it was given


class Drive:
    """The motion that is being commanded. Not thread-safe, reads no clock."""

    def __init__(self, gate: Gate, planners: Mapping[str, FallbackPlanner]) -> None:
        self.gate = gate
        self.planners = planners
        self.shadow: Trajectory | None = None  # the last command
        self.motion: Trajectory | None = None  # what commands are made from
        self.planner = ""  # who made the motion, if a planner did
        self.failures: deque[str] = deque(maxlen=16)  # what planners did wrong
        self.failed = 0
        self._whole = True
        self._seam_ends = -math.inf  # when the difference that is fading out will have faded
        self._tracker = Tracker(gate.limits, gate.settings.period_s)
        self._history: deque[Trajectory] = deque(maxlen=_HISTORY)

    @property
    def limits(self) -> Limits:
        """The limits of the joints."""
        return self.gate.limits

    @property
    def settings(self) -> WatchdogSettings:
        """The watchdog's settings."""
        return self.gate.settings

    def forget(self) -> None:
        """Forget the last command: the arm is nobody's."""
        self.shadow = self.motion = None
        self._history.clear()

    def begin_at(self, now: float, sample: JointSample) -> None:
        """Take the measured state, at rest, for the last command: where nothing was ever commanded."""
        # Beyond a limit, too: to be set onto it would be a jump.
        self.shadow = at_rest(now, self.limits.joint_names, sample.position)
        self.motion, self._whole = self.shadow, True

    def state(self, now: float) -> MotionState:
        """Return where the command is at ``now``; needs a shadow."""
        position, velocity = self.shadow.sample(now)
        limit = self.limits.acceleration
        return MotionState(position, velocity, np.clip(self.shadow.acceleration(now), -limit, limit))

    def resting(self) -> bool:
        """Whether the motion has come to its end: all that is left of it is to stay."""
        motion = self.motion
        return motion is None or not (motion.velocities.any() or (motion.positions != motion.positions[-1]).any())

    def fit(
        self, now: float, trajectory: Trajectory, measured: np.ndarray | None = None, tolerance_rad: float = 0.0
    ) -> Trajectory | GateRefusal:
        """Return ``trajectory`` as a command at ``now`` that goes on exactly where the last one is, or why not.

        Between the stamp and ``now`` a planner may have left the last command a little; that difference fades out
        inside the first ``seam_s`` seconds, or, if the limits forbid that, as soon as they allow. With no command yet,
        it must begin near the ``measured`` state.
        """
        left = rebased(trajectory, now)
        if self.shadow is None:
            return self.gate.near(left, measured) or self.gate.limits_kept(left) or left
        refusal = self.gate.continuous(trajectory, self.shadow, tolerance_rad)
        if refusal is not None:
            return refusal
        position, velocity = self.shadow.sample(now)
        settings = self.settings
        fitted = joined(left, position, velocity, self._seam_left(now, trajectory.plan_id))
        if fitted is left:
            self._seam_ends = -math.inf
        refusal, over = self.gate.verdict(fitted)
        if refusal is None or fitted is left:
            return refusal or fitted
        self._seam_ends = -math.inf  # it fades as the limits allow
        # The rest of the message must be sound by itself; only the way onto it may be what the limits forbid.
        refusal = self.gate.limits_kept(left)
        if refusal is not None:
            return refusal
        target = mixed(fitted, left, over)
        fitted = led(target, position, velocity, settings.window_s, self.limits, self._tracker, settings.period_s)
        return self.gate.limits_kept(fitted) or fitted

    def _seam_left(self, now: float, plan_id: str) -> float:
        """Return how long a difference may take to fade out, s.

        One that fades already, on the same plan, keeps its time: begun anew at every tick it would never be gone.
        """
        if now >= self._seam_ends or self.shadow.plan_id != plan_id:
            self._seam_ends = now + self.settings.seam_s
        return self._seam_ends - now

    def follow(self, trajectory: Trajectory, planner: str = "") -> None:
        """Command ``trajectory``, whole, until something else is given."""
        self.motion, self.planner, self._whole = trajectory, planner, True

    def take_over(self, now: float, name: str, measured: JointSample | None, cause: str) -> None:
        """Let the planner ``name`` have the arm from the last command on.

        A planner that raises, or whose trajectory does not pass the gate, is replaced by ``stop``; and if that does not
        fit either, the last command is driven to its end, which is a brake that was judged before.
        """
        situation = Situation(now, self.shadow, self.state(now), measured, cause)
        for candidate in dict.fromkeys((name, "stop")):
            planned = self._ask(candidate, situation)
            if planned is not None:
                self.motion, self.planner, self._whole = planned, candidate, planned.brake_from is not None
                return
        self.follow(rebased(self.shadow, now), "last command")

    def _ask(self, name: str, situation: Situation) -> Trajectory | None:
        try:
            planned = self.planners[name].plan(situation)
        except Exception as error:  # a plug-in must not take the watchdog with it
            self._note(f"{name}: {type(error).__name__}: {error}")
            return None
        refusal = self.gate.form(situation.now, planned, self.settings.period_s) or self.gate.limits_kept(planned)
        state = situation.state
        start = max(
            np.abs(planned.positions[0] - state.position).max(), np.abs(planned.velocities[0] - state.velocity).max()
        )
        if refusal is not None or start > _SAME or planned.start != situation.now:
            self._note(f"{name}: {refusal.text if refusal else f'starts {brief(start)} away from the last command'}")
            return None
        return replace(planned, plan_id=name)

    def go_to(self, now: float, target: np.ndarray, speed: float, planner: str) -> bool:
        """Go from the last command to ``target`` (n,) rad at ``speed`` (a fraction of all limits); say if it works.

        It does not where the arm is too fast for so gentle a motion to stay inside the limits.
        """
        limits = self.limits
        target = np.clip(target, limits.lower, limits.upper)
        state = self.state(now)
        speeds = (limits.velocity * speed, limits.acceleration * speed, limits.jerk * speed)
        try:
            way = move(state, target, *speeds)
        except MotionError as error:
            self._note(f"{planner}: {error}")
            return False
        motion = Trajectory(now, limits.joint_names, way.times, way.positions, way.velocities, planner)
        if self.gate.limits_kept(motion) is not None:
            return False
        self.motion, self.planner, self._whole = motion, planner, False
        return True

    def abandoned(self, now: float) -> bool:
        """Whether the last command ended and nothing came for so long that somebody else may have taken the arm."""
        last = self.shadow
        return last is not None and now > last.end and now - last.start > ABANDONED_S

    def left(self, now: float) -> bool:
        """Whether the arm has left the motion, because what was commanded of it came to its stop, or was never sent.

        That takes a pause of the whole process, and then the arm must not be sent to where the motion would be by now.
        """
        last, motion = self.shadow, self.motion
        if last is None or motion is None or now - last.start < 1.5 * self.settings.period_s:
            return False
        (q0, v0), (q1, v1) = last.sample(now), motion.sample(now)
        return max(np.abs(q1 - q0).max(), np.abs(v1 - v0).max()) > _SAME

    def command(self, now: float) -> Trajectory:
        """Return the command for ``now`` and remember it as the last."""
        settings = self.settings
        if self.left(now):
            self._note(f"{self.planner or 'plan'}: no command of it for {now - self.shadow.start:.3f} s, it was left")
            self.follow(self.shadow, "last command")
        made = self.motion = rebased(self.motion, now)
        if not self._whole:
            made = windowed(self.motion, settings.window_s, self.limits, settings.brake_step_s)
        self.shadow = made
        self._history.append(made)
        return made

    def unsay(self) -> None:
        """Take back the last command, which was never sent: the arm follows the one before, or stands."""
        unsaid = self._history.pop()
        standing = at_rest(unsaid.start, unsaid.joint_names, unsaid.positions[0])
        self.shadow = self._history[-1] if self._history else standing

    def commanded_at(self, t: float) -> np.ndarray | None:
        """Return the position (n,) that was commanded for ``t``; None before the first command."""
        for made in reversed(self._history):
            if made.start <= t:
                return made.sample(t)[0]
        return self._history[0].positions[0] if self._history else None

    def _note(self, text: str) -> None:
        self.failed += 1
        self.failures.append(text)
