"""The follower: messages in, one command per control update out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vla_runtime.sim.follower.message import NOTHING, Point, TrajectoryMessage
from vla_runtime.sim.follower.rules import FollowerSettings, Rejection, validate
from vla_runtime.sim.follower.sampling import ActiveTrajectory, Sample, State
from vla_runtime.sim.follower.splice import JointOrder, splice


@dataclass
class Figures:
    """What has been counted."""

    received: int = 0
    accepted: int = 0
    replaced: int = 0  # messages that were overwritten by the next before any update saw them
    spliced: int = 0
    not_finite: int = 0  # messages with a NaN or infinity: not rejected, as in the controller, but counted
    holds: int = 0  # times that it stopped by itself: a tolerance or the command timeout
    rejected: Counter = field(default_factory=Counter)  # by reason
    last_rejection: str = ""


class Follower:
    """One controller instance: `accept` messages as they arrive, `update` at the control rate.

    Times are ROS time in integer nanoseconds. Not thread-safe: one owner, or a lock around both calls.
    """

    def __init__(self, joint_names: Sequence[str], settings: FollowerSettings | None = None):
        """joint_names: the controller's joints, in its order. Raises ValueError for duplicates or none."""
        names = list(joint_names)
        if not names or len(set(names)) != len(names):
            raise ValueError(f"joint_names are {names}; the controller needs at least one, each once")
        self.joint_names = names
        self.settings = settings or FollowerSettings()
        self.figures = Figures()
        self._order = JointOrder(names)
        self._pending: TrajectoryMessage | None = None
        self._active: ActiveTrajectory | None = None
        self._holding = False
        self._cursor_ns = 0  # how far the active trajectory has been played
        self._updated_ns: int | None = None
        self._command: State | None = None
        self._commanded_ns: int | None = None

    @property
    def holding(self) -> bool:
        """Whether it holds a position by its own decision: since activation, or since a timeout or a tolerance."""
        return self._holding

    @property
    def resting(self) -> bool:
        """Whether the running trajectory has been played to its end."""
        end_ns = self._active.start_ns + self._active.points[-1].time_ns if self._active else 0
        return self._active is not None and self._active.sampled and self._cursor_ns >= end_ns

    def activate(self, position: np.ndarray, velocity: np.ndarray | None = None) -> None:
        """Start (again) by holding the measured position (n,) rad; what has been counted stands."""
        state = self._measured(position, velocity)
        self._active, self._updated_ns, self._commanded_ns = None, None, None
        self._command = state
        self._hold(state)

    def accept(self, message: TrajectoryMessage, now_ns: int) -> Rejection | None:
        """A message arrived. Returns None, or why it is dropped; the running trajectory then goes on.

        An accepted message takes effect at the next update. It also ends a hold that the controller had begun.
        """
        self.figures.received += 1
        rejection = validate(message, self.joint_names, self.settings, now_ns)
        if rejection:
            self.figures.rejected[rejection.reason] += 1
            self.figures.last_rejection = rejection.text
            return rejection
        numbers = np.concatenate([vector for p in message.points for vector in (p.positions, p.velocities)])
        self.figures.not_finite += not np.isfinite(numbers).all()
        self.figures.accepted += 1
        self.figures.replaced += self._pending is not None and not self._holding
        self._pending = message
        self._holding = False
        return None

    def update(
        self, now_ns: int, position: np.ndarray, velocity: np.ndarray | None = None, period_ns: int | None = None
    ) -> State:
        """One control cycle; returns the command for all joints.

        position, velocity: measured, (n,) rad and rad/s. period_ns: time since the last update (steady clock); None
        takes it from now_ns. Raises RuntimeError before `activate`.
        """
        if self._command is None:
            raise RuntimeError("the follower is not active; call activate(measured position) first")
        measured = self._measured(position, velocity)
        self._install(now_ns)
        first = not self._active.sampled
        self._advance(now_ns, measured, period_ns)
        active, settings = self._active, self.settings
        ahead_ns = round(1e9 / settings.update_rate_hz) if settings.looks_ahead else 0
        command = active.sample(self._cursor_ns + ahead_ns)
        if command is None:  # the clock went back behind the state that the trajectory begins from
            return self._command
        overrun_s = (self._cursor_ns - command.segment_ns) * 1e-9
        if command.at_end and not self._holding and 0.0 < settings.timeout_s < overrun_s:
            self._hold(measured, counted=True)
        if self._tolerated(command, measured, overrun_s, first):
            self._command = command.state
            self._commanded_ns = now_ns
        else:
            self._hold(measured, counted=True)
        return self._command

    def _measured(self, position: np.ndarray, velocity: np.ndarray | None) -> State:
        position = np.array(position, dtype=np.float64)
        if position.shape != (len(self.joint_names),):
            raise ValueError(f"the measured position has shape {position.shape}; expected ({len(self.joint_names)},)")
        known = velocity is not None and self.settings.velocity_state
        return State(position, np.array(velocity, dtype=np.float64) if known else NOTHING, NOTHING)

    def _hold(self, measured: State, counted: bool = False) -> None:
        # At the measured position: on a position interface that is a step by the tracking error.
        n = len(self.joint_names)
        point = Point(0, measured.positions, np.zeros(n), np.zeros(n))
        self._pending = TrajectoryMessage(0, list(self.joint_names), [point])
        self._holding = True
        self.figures.holds += counted

    def _install(self, now_ns: int) -> None:
        message, self._pending = self._pending, None
        if message is None:
            return
        splices = self.settings.splices and self._active and len(self._active.points) > 1 and not self._holding
        if splices or message.joint_names != self.joint_names:
            message = message.copy()  # the sender's stays as it was
        if splices:
            message = splice(message, self._active, self._order, now_ns, self._cursor_ns, self._command.positions)
            self.figures.spliced += 1
        self._order.fill(message, self._command.positions)
        self._order.sort(message)
        self._active = ActiveTrajectory(message)

    def _advance(self, now_ns: int, measured: State, period_ns: int | None) -> None:
        if not self._active.sampled:
            if self.settings.interpolate_from_desired_state:
                # Humble's open_loop_control begins at `now`; later ones at the time of the last command.
                last_ns = self._commanded_ns if self._commanded_ns is not None else now_ns
                self._active.begin(now_ns, last_ns if self.settings.looks_ahead else now_ns, self._command)
            else:
                self._active.begin(now_ns, now_ns, measured)
            self._cursor_ns = now_ns
        elif not self.settings.looks_ahead:
            self._cursor_ns = now_ns
        else:
            # Later controllers integrate their own time between two messages (speed scaling needs it).
            self._cursor_ns += period_ns if period_ns is not None else now_ns - self._updated_ns
        self._updated_ns = now_ns

    def _tolerated(self, command: Sample, measured: State, overrun_s: float, first: bool) -> bool:
        settings = self.settings
        judged = []
        if first or not command.at_end:  # the first sample always, in case that it is the last point already
            judged.append(settings.trajectory_tolerance_rad)
        if command.at_end and 0.0 < settings.goal_time_s < overrun_s:
            judged.append(settings.goal_tolerance_rad)
        limits = [tolerance for tolerance in judged if tolerance > 0.0]
        if self._holding or not limits:
            return True
        # Judged is the plan at this instant, not the command, which looks ahead.
        desired = self._active.sample(self._cursor_ns) or command
        return float(np.max(np.abs(desired.state.positions - measured.positions))) <= min(limits)
