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


def interpolate(a_ns: int, a: Point | State, b_ns: int, b: Point | State, t_ns: int) -> State:
    """Between two states: linear, cubic or quintic, by the derivatives that both ends have.

    Outside of [a, b] the nearer end's position is held by the linear rule, as the controller does.
    """
    total = (b_ns - a_ns) * 1e-9
    t = (t_ns - a_ns) * 1e-9
    velocity = len(a.velocities) > 0 and len(b.velocities) > 0
    acceleration = len(a.accelerations) > 0 and len(b.accelerations) > 0
    if t < 0.0 or t > total:
        t = min(max(t, 0.0), total)
        velocity = acceleration = False
    p0, p1 = a.positions, b.positions
    zero = np.zeros_like(p0)
    if acceleration and not velocity:
        # No rule of the controller matches here, and what it then hands to the joints is 0.
        return State(zero, zero, zero)
    if total == 0.0:
        return State(p0, a.velocities if velocity else zero, zero)
    step = p1 - p0
    if acceleration:
        v0, v1 = a.velocities * total, b.velocities * total
        a0, a1 = a.accelerations * total**2, b.accelerations * total**2
        c = (
            p0,
            v0,
            a0 / 2,
            10 * step - 6 * v0 - 4 * v1 - 1.5 * a0 + 0.5 * a1,
            -15 * step + 8 * v0 + 7 * v1 + 1.5 * a0 - a1,
            6 * step - 3 * (v0 + v1) - 0.5 * (a0 - a1),
        )
    elif velocity:
        v0, v1 = a.velocities * total, b.velocities * total
        c = (p0, v0, 3 * step - 2 * v0 - v1, -2 * step + v0 + v1)
    else:
        c = (p0, step)
    # Horner's rule on s = t / total for the value and both derivatives at once.
    s = t / total
    p, v, acc = c[-1], zero, zero
    for coefficient in c[-2::-1]:
        acc = acc * s + 2.0 * v
        v = v * s + p
        p = p * s + coefficient
    return State(p, v / total, acc / total**2)


class ActiveTrajectory:
    """A message under way. Points are in the controller's joint order."""

    def __init__(self, message: TrajectoryMessage):
        self.message = message
        self.points = message.points
        self.start_ns = message.stamp_ns
        self.sampled = False
        self._times = [p.time_ns for p in message.points]
        self._before: tuple[int, State] | None = None

    def begin(self, before_ns: int, before: State) -> None:
        """Set the state from which the first point is approached; derivatives that it lacks become 0 (PR #2043)."""
        first, n = self.points[0], len(before.positions)
        velocities, accelerations = before.velocities, before.accelerations
        if not len(velocities) and len(first.velocities):
            velocities = np.zeros(n)
        if not len(accelerations) and len(first.accelerations):
            accelerations = np.zeros(n)
        self._before = (before_ns, State(before.positions, velocities, accelerations))

    def sample(self, t_ns: int) -> Sample | None:
        """What it says at t_ns; None before the instant it was begun. The first call starts a stamp of 0."""
        if not self.sampled:
            self.sampled = True
            if self.start_ns == 0:
                self.start_ns = t_ns
        before_ns, before = self._before
        if t_ns < before_ns:
            return None
        elapsed = t_ns - self.start_ns
        if elapsed < self._times[0]:
            first_ns = self.start_ns + self._times[0]
            return Sample(interpolate(before_ns, before, first_ns, self.points[0], t_ns), False, first_ns)
        i = bisect_right(self._times, elapsed) - 1
        a_ns, a = self.start_ns + self._times[i], self.points[i]
        if i + 1 < len(self.points):
            b_ns = self.start_ns + self._times[i + 1]
            return Sample(interpolate(a_ns, a, b_ns, self.points[i + 1], t_ns), False, a_ns)
        n = len(a.positions)
        velocities = a.velocities if len(a.velocities) else np.zeros(n)
        accelerations = a.accelerations if len(a.accelerations) else np.zeros(n)
        return Sample(State(a.positions, velocities, accelerations), True, a_ns)
