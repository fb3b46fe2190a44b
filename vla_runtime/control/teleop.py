"""An operator at the wheel: their stream passes the same gate, and the arm goes to it before it follows.

Who goes before whom: FAULT, then an operator's hold, then teleop, then the policy.
The rule of engaging: a stream that passes near the last command is followed at once. If it is elsewhere, the arm goes
to where the newest trajectory of the stream ends, jerk-limited and slowly; when the two are close, it follows. So keep
the leader still until the arm has come.
"""

import numpy as np

from vla_runtime.control.drive import Drive
from vla_runtime.control.gate import Gate, GateRefusal
from vla_runtime.control.reissue import rebased
from vla_runtime.control.silences import Silence
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog_settings import WatchdogSettings

_APPROACH = "teleop approach"  # as the name of a planner
_SAME_GOAL_RAD = 0.001  # a goal that moves by less is the same goal


class Teleop:
    """Judges an operator's trajectories and drives along them or towards them."""

    def __init__(self, gate: Gate, drive: Drive) -> None:
        self._gate = gate
        self._drive = drive
        self._offered: Trajectory | None = None
        self._heard_at = -np.inf  # last message, good or not
        self._good_at = -np.inf
        self._goal: np.ndarray | None = None  # where the arm is going, while it does not follow yet
        self._stopping = False  # too fast to go anywhere else at once
        self._muted = False
        self.heard_now = False  # whether this tick's message may drive the arm

    def offer(self, now: float, trajectory: Trajectory) -> None:
        """Keep the newest trajectory for the next tick."""
        self._offered = trajectory

    def mute(self) -> None:
        """Ignore the stream until it pauses: the operator has let go, though the device may still send."""
        self._muted = True

    def forget(self) -> None:
        """Begin anew."""
        self._offered, self._goal, self._muted, self.heard_now = None, None, False, False
        self._heard_at = self._good_at = -np.inf

    @property
    def following(self) -> bool:
        """Whether the arm follows the stream itself."""
        return self._goal is None

    def silence(self, now: float, timeout_s: float) -> Silence | None:
        """Return the silence of the stream once it is longer than ``timeout_s``."""
        age = now - self._good_at
        if age <= timeout_s + 1e-6:
            return None
        return Silence("teleop", age, timeout_s, f"no valid teleop trajectory for {age:.3f} s (limit {timeout_s} s)")

    def listen(
        self, now: float, allowed: bool, measured: JointSample | None, settings: WatchdogSettings
    ) -> GateRefusal | None:
        """Take this tick's trajectory, if there is one, and drive; ``heard_now`` says whether it did.

        Returns the refusal, if there was a trajectory that may not drive the arm.
        """
        self.heard_now = False
        trajectory, self._offered = self._offered, None
        if trajectory is None:
            return None
        paused = now - self._heard_at > settings.teleop_timeout_s
        self._heard_at = now
        if self._muted and not paused:
            return None
        self._muted = False
        if not allowed:
            return GateRefusal("teleop_not_allowed", "teleop is switched off, or the arm is held or in fault")
        if measured is None:
            return GateRefusal("blind", "teleop refused: the measured state is unknown")
        refusal = self._gate.form(now, trajectory, settings.teleop_timeout_s)
        refusal = refusal or self._gate.limits_kept(rebased(trajectory, now))
        if refusal is not None:
            return refusal
        if paused:
            self._goal, self._stopping = None, False
        if self._drive.shadow is None:
            self._drive.begin_at(now, measured)
        self._drive_to(now, trajectory, settings)
        return None

    def _drive_to(self, now: float, trajectory: Trajectory, settings: WatchdogSettings) -> None:
        fitted = self._drive.fit(now, trajectory, tolerance_rad=settings.teleop_engage_rad)
        if isinstance(fitted, Trajectory):
            self._drive.follow(fitted)
            self._goal = None
            self._stopping = False
        else:
            self._approach(now, trajectory.positions[-1], settings)
        self._good_at = now
        self.heard_now = True

    def _approach(self, now: float, goal: np.ndarray, settings: WatchdogSettings) -> None:
        """Go to where the stream ends; from a motion too fast for that within the limits, stop first."""
        going = self._goal is not None and self._drive.planner == _APPROACH and not self._drive.left(now)
        if going and np.abs(goal - self._goal).max() <= _SAME_GOAL_RAD:
            return
        if self._drive.go_to(now, goal, settings.teleop_speed, _APPROACH):
            self._goal, self._stopping = goal, False
        elif not self._stopping:
            self._drive.take_over(now, "hold", None, "stop before going to the operator's stream")
            self._goal, self._stopping = None, True
