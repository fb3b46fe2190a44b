"""What the executor plans and what the watchdog commands: timed positions and velocities that end at rest."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vla_runtime.control.finite import all_finite

MIN_SPACING_S = 0.004
"""No two points closer than this: below it controllers of 250 Hz and less see two points in one cycle."""


@dataclass(frozen=True, eq=False)
class JointSample:
    """One JointState, already mapped to the controller's joint order.

    ``t``: steady seconds of its stamp; ``position`` (n,), ``velocity`` (n,), ``effort`` (n,) or None; joint units.
    """

    t: float
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Points that a joint trajectory controller joins by cubics (Hermite, as it does for position and velocity).

    ``start``: steady seconds of point 0; ``times`` (m,) s from ``start``, ``times[0] == 0``, strictly increasing;
    ``positions`` (m, n); ``velocities`` (m, n), the last row exactly 0; ``plan_id``: the request id of the plan that
    it follows; ``brake_from``: index of the point at which the brake begins, None where nothing is said about it.
    The constructor checks shapes only (it runs 50 times a second); :meth:`fault` checks the whole form.
    """

    start: float
    joint_names: tuple[str, ...]
    times: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    plan_id: str = ""
    brake_from: int | None = None

    def __post_init__(self) -> None:
        shape = (len(self.times), len(self.joint_names))
        if shape[0] == 0 or self.positions.shape != shape or self.velocities.shape != shape:
            raise ValueError(
                f"{shape[0]} times and {shape[1]} joints, but positions {self.positions.shape} "
                f"and velocities {self.velocities.shape}"
            )

    @cached_property
    def _knots(self) -> list[float]:
        return self.times.tolist()

    @property
    def end(self) -> float:
        """Steady seconds of the last point."""
        return self.start + self._knots[-1]

    def sample(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Return position and velocity (n,), (n,) at steady time ``t``; clamped to the first and the last point."""
        s, i = t - self.start, self._segment(t)
        if i < 0:
            return self.positions[0].copy(), self.velocities[0].copy()
        if i >= len(self._knots) - 1:
            return self.positions[-1].copy(), self.velocities[-1].copy()
        # Hermite's basis, as weights of the way d and of the velocities: where nothing moves, exactly nothing moves.
        h = self._knots[i + 1] - self._knots[i]
        u = (s - self._knots[i]) / h
        w = 1.0 - u
        p, v0, v1 = self.positions[i], self.velocities[i], self.velocities[i + 1]
        d = self.positions[i + 1] - p
        position = p + ((u * u * (3.0 - 2.0 * u)) * d + ((h * u * w * w) * v0 - (h * u * u * w) * v1))
        return position, (6.0 * u * w / h) * d + ((w * (w - 2.0 * u)) * v0 + (u * (u - 2.0 * w)) * v1)

    def acceleration(self, t: float) -> np.ndarray:
        """Return the acceleration (n,) of the cubic at ``t`` (of the following one, at a point); 0 outside."""
        i = self._segment(t)
        if i < 0 or i >= len(self._knots) - 1:
            return np.zeros(len(self.joint_names))
        h = self._knots[i + 1] - self._knots[i]
        a, jerk = self._cubic(i, h)
        return a + (t - self.start - self._knots[i]) * jerk

    def fault(self) -> str | None:
        """Say what is wrong with the form of a message, or None: finite, times, spacing, ends at rest."""
        if self.times[0] != 0.0:
            return f"time_from_start of the first point is {self.times[0]:g} s, not 0"
        if not all_finite(self.times):
            return "a time is not finite"
        gaps = self.times[1:] - self.times[:-1]
        if gaps.size and gaps.min() < MIN_SPACING_S - 1e-9:
            i = int(gaps.argmin())
            return f"points {i} and {i + 1} are {gaps[i]:.4f} s apart; at least {MIN_SPACING_S} s is needed"
        for what, values in (("position", self.positions), ("velocity", self.velocities)):
            if not all_finite(values):
                row, joint = (int(k) for k in np.argwhere(~np.isfinite(values))[0])
                return f"{what} of {self.joint_names[joint]} at point {row} is {values[row, joint]}"
        if self.velocities[-1].any():
            joint = int(np.abs(self.velocities[-1]).argmax())
            return f"ends moving: {self.joint_names[joint]} at {self.velocities[-1, joint]:g} per second"
        return None

    def _segment(self, t: float) -> int:
        return bisect_right(self._knots, t - self.start) - 1

    def _cubic(self, i: int, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Acceleration at the start of segment ``i`` and its jerk."""
        v0, v1 = self.velocities[i], self.velocities[i + 1]
        slope = (self.positions[i + 1] - self.positions[i]) / h
        return (6.0 * slope - 4.0 * v0 - 2.0 * v1) / h, (6.0 * (v0 + v1) - 12.0 * slope) / h**2


REST_S = 0.1
"""A message reaches at least this far, so that it cannot have ended when the controller reads it."""


def at_rest(start: float, joint_names: tuple[str, ...], position: np.ndarray) -> Trajectory:
    """Return a rest of ``REST_S`` at ``position`` (n,), joint units, from ``start`` on."""
    rest = np.zeros((2, len(position)))
    return Trajectory(start, joint_names, np.array([0.0, REST_S]), np.stack([position, position]), rest, brake_from=0)
