"""From the policy's step to the control grid: a plan evaluated once at absolute times, with continuous velocity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import gaussian_filter1d

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
    """A plan on the control grid: row i belongs to grid point ``first + i``. Positions, velocities (m, n), m >= 1.

    ``t0`` and ``end``: steady seconds of the first and the last waypoint; ``plan_id``: the request it answered;
    ``dt`` s and ``horizon``: the policy's step and its number of waypoints.
    """

    plan_id: str
    t0: float
    end: float
    dt: float
    horizon: int
    grid: Grid
    first: int
    positions: np.ndarray
    velocities: np.ndarray

    @property
    def last(self) -> int:
        """The last grid point that the plan covers."""
        return self.first + len(self.positions) - 1

    def at(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity (n,), (n,) at steady time ``t``: the cubic between grid points, lines outside."""
        s = (t - self.grid.origin) / self.grid.period - self.first
        i = min(max(math.floor(s), 0), len(self.positions) - 1)
        h, u = self.grid.period, s - i
        p0, v0 = self.positions[i], self.velocities[i]
        if u < 0.0 or i == len(self.positions) - 1:
            return p0 + (u * h) * v0, v0.copy()
        jump, v1 = self.positions[i + 1] - p0, h * self.velocities[i + 1]
        v0 = h * v0
        a, b = 3.0 * jump - 2.0 * v0 - v1, v0 + v1 - 2.0 * jump
        return p0 + u * (v0 + u * (a + u * b)), (v0 + u * (2.0 * a + (3.0 * u) * b)) / h


def smooth(positions: np.ndarray, dt: float, seconds: float, mixed: np.ndarray) -> np.ndarray:
    """Return waypoints (H, n) smoothed by a Gaussian of ``seconds`` standard deviation; only the joints ``mixed`` (n,).

    Without lag, and both ends stay where they are (beyond them the plan is taken to go on point-symmetrically). For
    jitter from one waypoint to the next, which asks for accelerations that no joint has.
    """
    sigma = seconds / dt
    pad = min(len(positions) - 1, math.ceil(3.0 * sigma))
    if pad < 1:
        return positions
    longer = np.pad(positions, ((pad, pad), (0, 0)), mode="reflect", reflect_type="odd")
    smoothed = gaussian_filter1d(longer, sigma, axis=0, mode="nearest", truncate=3.0)[pad:-pad]
    return np.where(mixed, smoothed, positions)


def resample(plan_id: str, t0: float, dt: float, positions: np.ndarray, grid: Grid) -> GridPlan | None:
    """Lay the waypoints (H, n) at ``t0 + i * dt``, H >= 2, on the grid; None where no grid point falls between them.

    Monotone cubic interpolation (PCHIP, Fritsch and Butland): the velocity is continuous, a rise stays a rise, and
    no value leaves the range of the two waypoints around it, so what is inside the limits stays inside.
    """
    horizon = len(positions)
    end = t0 + (horizon - 1) * dt
    first, last = grid.at_or_after(t0), grid.at_or_before(end)
    if first > last:
        return None
    curve = PchipInterpolator(dt * np.arange(horizon), positions, axis=0)
    times = np.clip(grid.origin - t0 + grid.period * np.arange(first, last + 1), 0.0, (horizon - 1) * dt)
    return GridPlan(plan_id, t0, end, dt, horizon, grid, first, curve(times), curve(times, 1))
