"""From the policy's step to the control grid: a plan evaluated once at absolute times, with continuous velocity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator

_ROUNDING = 1e-6
"""Of a period. The grid's times are sums of periods: a point that rounding puts past the plan's end is on it."""


@dataclass(frozen=True)
class Grid:
    """The control grid: point k is at ``origin + k * period`` steady seconds."""

    origin: float
    period: float

    def time(self, k: int) -> float:
        """Steady seconds of point ``k``."""
        return self.origin + k * self.period

    def at_or_after(self, t: float) -> int:
        """The first point not before ``t``."""
        return math.ceil((t - self.origin) / self.period - _ROUNDING)

    def at_or_before(self, t: float) -> int:
        """The last point not after ``t``."""
        return math.floor((t - self.origin) / self.period + _ROUNDING)


@dataclass(frozen=True, eq=False)
class GridPlan:
    """A plan on the control grid: row i belongs to grid point ``first + i``. Positions, velocities (m, n).

    ``t0`` and ``end``: steady seconds of the first and the last waypoint; ``plan_id``: the request it answered;
    ``dt`` s and ``horizon``: the policy's step and its number of waypoints.
    """

    plan_id: str
    t0: float
    end: float
    dt: float
    horizon: int
    first: int
    positions: np.ndarray
    velocities: np.ndarray
    curve: PchipInterpolator

    @property
    def last(self) -> int:
        """The last grid point that the plan covers."""
        return self.first + len(self.positions) - 1

    def at(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity (n,), (n,) at steady time ``t``, clamped to the plan's ends."""
        s = min(max(t - self.t0, 0.0), self.end - self.t0)
        return self.curve(s), self.curve(s, 1)


def resample(plan_id: str, t0: float, dt: float, positions: np.ndarray, grid: Grid) -> GridPlan:
    """Lay the waypoints (H, n) at ``t0 + i * dt``, H >= 2, on the grid.

    Monotone cubic interpolation (PCHIP, Fritsch and Butland): the velocity is continuous, a rise stays a rise, and
    no value leaves the range of the two waypoints around it, so what is inside the limits stays inside.
    """
    horizon = len(positions)
    end = t0 + (horizon - 1) * dt
    curve = PchipInterpolator(dt * np.arange(horizon), positions, axis=0)
    first, last = grid.at_or_after(t0), grid.at_or_before(end)
    times = grid.origin - t0 + grid.period * np.arange(first, last + 1)
    times = np.clip(times, 0.0, end - t0)
    return GridPlan(plan_id, t0, end, dt, horizon, first, curve(times), curve(times, 1), curve)
