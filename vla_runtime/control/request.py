"""What the executor asks for, and what it will do until the answer comes: the committed prefix."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.resample import GridPlan
from vla_runtime.control.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """One request for a plan.

    ``request_id``: "<epoch>:<n>"; ``stamp``: steady seconds; ``cause``: why now ("k", "mismatch", ...).
    ``times`` (r,) s from the stamp, one policy step apart, from a little before the stamp (negative: already executed)
    to the end of the running plan; ``positions`` (r, n) rad: the commands at these times. The first ``committed``
    points after (and at) the stamp will be executed before the expected answer; what follows will be executed only
    as far as the answer is late. All empty while there is nothing to be said: never zeros, never a mean.
    """

    request_id: str
    stamp: float
    cause: str
    times: np.ndarray
    positions: np.ndarray
    committed: int


class History:
    """The last commands, one a tick."""

    def __init__(self, seconds: float, period_s: float):
        self._points: deque[tuple[float, np.ndarray]] = deque(maxlen=max(2, math.ceil(seconds / period_s) + 2))

    def add(self, t: float, position: np.ndarray) -> None:
        """Take in the command at steady time ``t``; times must increase, an earlier one starts anew."""
        if self._points and t <= self._points[-1][0]:
            self._points.clear()
        self._points.append((t, position))

    def clear(self) -> None:
        """Forget everything."""
        self._points.clear()

    def at(self, t: float) -> np.ndarray | None:
        """Return the command (n,) at steady time ``t``; None where it is not known."""
        points = self._points
        if not points or t > points[-1][0] or t < points[0][0]:
            return None
        for i in range(len(points) - 1, 0, -1):
            (t0, p0), (t1, p1) = points[i - 1], points[i]
            if t >= t0:
                return p0 + (p1 - p0) * ((t - t0) / (t1 - t0))
        return points[0][1]

    def arrays(self) -> tuple[list[float], list[np.ndarray]]:
        """Return the times and the positions that are kept, oldest first."""
        return [t for t, _ in self._points], [p for _, p in self._points]


def prefix(
    now: float, dt: float, history: History, ahead: Trajectory | None, plan: GridPlan | None, history_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return (times (r,) s from ``now``, positions (r, n)): what was and will be executed, a policy step ``dt`` apart.

    ``ahead``: the trajectory that is being executed; ``plan``: the plan that goes on behind its window, if any. Without
    ``plan``, what ``ahead`` says to its end (a stop, a hold) is what will be executed.
    """
    if ahead is None:
        return np.zeros(0), np.zeros((0, 0))
    times, points = history.arrays()
    while times and times[-1] >= now - 1e-9:
        times.pop(), points.pop()
    last = len(ahead.times) if plan is None or ahead.brake_from is None else ahead.brake_from + 1
    own = ahead.start + ahead.times[:last]
    # A trajectory that began before now contributes what is still to come, from its value at now on.
    coming = own > now + 1e-9
    knots = [np.array(times), np.array([now]), own[coming]]
    rows = [*([np.array(points)] if points else []), ahead.sample(now)[0][None, :], ahead.positions[:last][coming]]
    if plan is not None:
        grid_times = plan.grid.origin + plan.grid.period * np.arange(plan.first, plan.last + 1)
        later = grid_times > max(own[-1], now) + 1e-9
        knots.append(grid_times[later])
        rows.append(plan.positions[later])
    t, p = np.concatenate(knots), np.concatenate(rows)
    back = math.floor((now - max(t[0], now - history_s)) / dt + 1e-9)
    on = math.floor((t[-1] - now) / dt + 1e-9)
    asked = now + dt * np.arange(-back, on + 1)
    i = np.clip(np.searchsorted(t, asked, side="right") - 1, 0, max(len(t) - 2, 0))
    if len(t) == 1:
        return asked - now, np.repeat(p, len(asked), axis=0)
    share = np.clip((asked - t[i]) / (t[i + 1] - t[i]), 0.0, 1.0)[:, None]
    return asked - now, p[i] + share * (p[i + 1] - p[i])
