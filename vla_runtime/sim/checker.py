"""Judges a run of commands by the promises alone: it shares no code with the parts that it judges."""

from collections import Counter

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.sim.follower import TrajectoryMessage

TOLERANCE = 0.02  # of a velocity or acceleration limit; the watchdog allows 1 %, interpolation and rounding the rest
TOLERANCE_RAD = 2e-3
CONTINUITY_RAD = 1e-5  # by which consecutive messages may disagree at the stamp of the later one
CONTINUITY_RAD_S = 1e-3


class Checker:
    """Looks at every message as it is published and at every command of the control updates; counts by kind."""

    def __init__(self, limits: Limits, period_s: float = 0.02):
        """limits: in the controller's joint order."""
        self._limits = limits
        self._period_s = period_s
        self.violations: Counter[str] = Counter()
        self.elapsed = 0
        self._message: TrajectoryMessage | None = None
        self._command: np.ndarray | None = None

    @property
    def total(self) -> int:
        """All violations together."""
        return sum(self.violations.values())

    def published(self, message: TrajectoryMessage, now_ns: int, plan_end_ns: int | None) -> None:
        """A message left at now_ns. plan_end_ns: the time of the last waypoint of the plan that it follows."""
        points = message.points
        positions = np.array([p.positions for p in points])
        velocities = np.array([p.velocities for p in points])
        times = np.array([p.time_ns for p in points]) * 1e-9
        limits = self._limits
        if not (np.isfinite(positions).all() and np.isfinite(velocities).all()):
            self.violations["not_finite"] += 1
            return
        if velocities[-1].any():
            self.violations["ends_moving"] += 1
        if (np.diff(times) <= 0).any():
            self.violations["time_order"] += 1
        if (positions < limits.lower - TOLERANCE_RAD).any() or (positions > limits.upper + TOLERANCE_RAD).any():
            self.violations["message_position"] += 1
        if (np.abs(velocities) > limits.velocity * (1 + TOLERANCE)).any():
            self.violations["message_velocity"] += 1
        if (
            len(points) > 1
            and (_accelerations(times, positions, velocities) > limits.acceleration * (1 + TOLERANCE)).any()
        ):
            self.violations["message_acceleration"] += 1
        # A waypoint whose time has passed, or a plan that has been used up, is being executed.
        late_s = (now_ns - message.stamp_ns) * 1e-9
        if late_s > self._period_s or (plan_end_ns is not None and message.stamp_ns > plan_end_ns + 1_000):
            self.elapsed += 1
        if self._message is not None:
            self._continuous(message)
        self._message = message

    def commanded(self, position: np.ndarray, period_s: float) -> None:
        """The controller commands position (n,) rad, period_s after its last command.

        Its acceleration is judged in the messages: the controller looks one period ahead, so where a message is
        replaced it has already gone a little way along the old one.
        """
        limits = self._limits
        if (position < limits.lower - TOLERANCE_RAD).any() or (position > limits.upper + TOLERANCE_RAD).any():
            self.violations["position"] += 1
        last = position if self._command is None else self._command
        if (np.abs(position - last) > limits.velocity * period_s * (1 + TOLERANCE) + 1e-6).any():
            self.violations["velocity"] += 1
        self._command = position

    def _continuous(self, message: TrajectoryMessage) -> None:
        last = self._message
        elapsed = message.stamp_ns - last.stamp_ns
        times = [p.time_ns for p in last.points]
        i = int(np.searchsorted(times, elapsed, side="right")) - 1
        if i < 0:
            return
        if i + 1 >= len(times):
            position, velocity = last.points[-1].positions, np.zeros(len(self._limits.lower))
        else:
            a, b = last.points[i], last.points[i + 1]
            h, s = (b.time_ns - a.time_ns) * 1e-9, (elapsed - a.time_ns) / (b.time_ns - a.time_ns)
            # Hermite's basis, written out: the control code has another form of it.
            h00, h10 = (1 + 2 * s) * (1 - s) ** 2, s * (1 - s) ** 2
            h01, h11 = s * s * (3 - 2 * s), s * s * (s - 1)
            position = h00 * a.positions + h10 * h * a.velocities + h01 * b.positions + h11 * h * b.velocities
            d00, d10, d11 = 6 * s * (s - 1), (1 - s) * (1 - 3 * s), s * (3 * s - 2)
            velocity = d00 / h * (a.positions - b.positions) + d10 * a.velocities + d11 * b.velocities
        first = message.points[0]
        if np.abs(first.positions - position).max() > CONTINUITY_RAD:
            self.violations["jump"] += 1
        elif np.abs(first.velocities - velocity).max() > CONTINUITY_RAD_S:
            self.violations["velocity_jump"] += 1


def _accelerations(times: np.ndarray, positions: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Largest |acceleration| of each joint's cubics, (n,): it is linear in each, so the ends are the extremes."""
    h = np.diff(times)[:, None]
    slope = np.diff(positions, axis=0) / h
    begin = (6 * slope - 4 * velocities[:-1] - 2 * velocities[1:]) / h
    end = (2 * velocities[:-1] + 4 * velocities[1:] - 6 * slope) / h
    return np.maximum(np.abs(begin), np.abs(end)).max(axis=0)
