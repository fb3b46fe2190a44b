"""The trajectory that is being followed: start time, the state before it, and what it says at an instant."""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from vla_runtime.sim.follower.message import Point, TrajectoryMessage


@dataclass(frozen=True)
class State:
    """A state of all joints. A vector of size 0 = the derivative is not known."""

    positions: np.ndarray  # (n,) rad
    velocities: np.ndarray  # (n,) rad/s, or (0,)
    accelerations: np.ndarray  # (n,) rad/s^2, or (0,)


@dataclass(frozen=True)
class Sample:
    """What a trajectory says at one instant."""

    state: State
    at_end: bool  # the last point has been reached and is being repeated
    segment_ns: int  # absolute time of the segment's first point (of the trajectory's, while it is approached)


class Segment:
    """The polynomial between two states: linear, cubic or quintic, by the derivatives that both ends have."""

    def __init__(self, a_ns: int, a: Point | State, b_ns: int, b: Point | State):
        """a at a_ns, b at b_ns; b_ns not before a_ns."""
        self._a_ns = a_ns
        self._total = total = (b_ns - a_ns) * 1e-9
        self._ends = (a, b)
        velocity = len(a.velocities) > 0 and len(b.velocities) > 0
        acceleration = len(a.accelerations) > 0 and len(b.accelerations) > 0
        p0, step = a.positions, b.positions - a.positions
        if acceleration and not velocity:
            # No rule of the controller matches here, and what it then hands to the joints is 0.
            rows = [np.zeros_like(p0)]
        elif total == 0.0:
            rows = [p0, a.velocities] if velocity else [p0]
        elif acceleration:
            h = total
            v0, v1, a0, a1 = a.velocities, b.velocities, a.accelerations, b.accelerations
            rows = [
                p0,
                v0,
                a0 / 2,
                (20 * step - (12 * v0 + 8 * v1) * h - (3 * a0 - a1) * h**2) / (2 * h**3),
                (-30 * step + (16 * v0 + 14 * v1) * h + (3 * a0 - 2 * a1) * h**2) / (2 * h**4),
                (12 * step - 6 * (v0 + v1) * h - (a0 - a1) * h**2) / (2 * h**5),
            ]
        elif velocity:
            h = total
            v0, v1 = a.velocities, b.velocities
            rows = [p0, v0, (3 * step - (2 * v0 + v1) * h) / h**2, (-2 * step + (v0 + v1) * h) / h**3]
        else:
            rows = [p0, step / total]
        self._coefficients = np.array(rows)  # (degree + 1, n), of powers of seconds since a

    def at(self, t_ns: int) -> State:
        """The state at t_ns; outside of the segment its end, at the slope of the straight line, as the controller."""
        t = (t_ns - self._a_ns) * 1e-9
        total = self._total
        if t < 0.0 or t > total:
            a, b = self._ends
            slope = (b.positions - a.positions) / total if total else np.zeros_like(a.positions)
            return State(b.positions if t > 0.0 else a.positions, slope, np.zeros_like(slope))
        if len(self._coefficients) == 2:
            powers = np.array([[1.0, t], [0.0, 1.0], [0.0, 0.0]])
        elif len(self._coefficients) == 4:
            powers = np.array([[1.0, t, t * t, t**3], [0.0, 1.0, 2 * t, 3 * t * t], [0.0, 0.0, 2.0, 6 * t]])
        else:
            k = np.arange(len(self._coefficients))
            powers = np.array([t**k, k * t ** np.maximum(k - 1, 0), k * (k - 1) * t ** np.maximum(k - 2, 0)])
        return State(*(powers @ self._coefficients))


class ActiveTrajectory:
    """A message under way. Points are in the controller's joint order."""

    def __init__(self, message: TrajectoryMessage):
        self.message = message
        self.points = message.points
        self.start_ns = message.stamp_ns
        self.sampled = False
        self._times = [p.time_ns for p in message.points]
        self._before: tuple[int, State] | None = None
        self._segment: tuple[int, Segment] = (-2, None)  # index of its first point (-1: from the state before), itself

    def begin(self, now_ns: int, before_ns: int, before: State) -> None:
        """Start at now_ns (a stamp of 0 becomes now) from a state; derivatives that it lacks become 0 (PR #2043)."""
        self.sampled = True
        if self.start_ns == 0:
            self.start_ns = now_ns
        first, n = self.points[0], len(before.positions)
        velocities, accelerations = before.velocities, before.accelerations
        if not len(velocities) and len(first.velocities):
            velocities = np.zeros(n)
        if not len(accelerations) and len(first.accelerations):
            accelerations = np.zeros(n)
        self._before = (before_ns, State(before.positions, velocities, accelerations))

    def sample(self, t_ns: int) -> Sample | None:
        """What it says at t_ns; None before the instant of the state that it was begun from."""
        if t_ns < self._before[0]:
            return None
        i = bisect_right(self._times, t_ns - self.start_ns) - 1
        if i + 1 < len(self.points):
            return Sample(self._between(i).at(t_ns), False, self.start_ns + self._times[max(i, 0)])
        last = self.points[-1]
        zero = np.zeros(len(last.positions))
        velocities = last.velocities if len(last.velocities) else zero
        accelerations = last.accelerations if len(last.accelerations) else zero
        return Sample(State(last.positions, velocities, accelerations), True, self.start_ns + self._times[-1])

    def _between(self, i: int) -> Segment:
        # The same segment is asked for at several updates in a row.
        if self._segment[0] != i:
            a_ns, a = self._before if i < 0 else (self.start_ns + self._times[i], self.points[i])
            self._segment = (i, Segment(a_ns, a, self.start_ns + self._times[i + 1], self.points[i + 1]))
        return self._segment[1]
