"""What the executor asks for, and what it will do until the answer comes: the committed prefix."""

from __future__ import annotations

import math
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
        self._size = max(2, math.ceil(seconds / period_s) + 2)
        self._count = 0  # rows of the arrays in use; twice as many as are kept, so that they rarely move
        self._times = np.empty(2 * self._size)
        self._positions = np.empty((0, 0))

    def add(self, t: float, position: np.ndarray) -> None:
        """Take in the command at steady time ``t``; times must increase, an earlier one starts anew."""
        if len(self._positions) == 0:
            self._positions = np.empty((2 * self._size, len(position)))
        if self._count and t <= self._times[self._count - 1]:
            self._count = 0
        if self._count == len(self._times):
            self._times[: self._size] = self._times[self._size :]
            self._positions[: self._size] = self._positions[self._size :]
            self._count = self._size
        self._times[self._count], self._positions[self._count] = t, position
        self._count += 1

    def clear(self) -> None:
        """Forget everything."""
        self._count = 0

    def at(self, t: float) -> np.ndarray | None:
        """Return the command (n,) at steady time ``t``; None where it is not known."""
        times, positions = self.arrays()
        i = len(times) - 1
        if i < 0 or t > times[i]:
            return None
        while i >= 0 and times[i] > t:  # what is asked for is nearly always among the last
            i -= 1
        if i < 0:
            return None
        if i == len(times) - 1:
            return positions[i].copy()
        share = (t - times[i]) / (times[i + 1] - times[i])
        return positions[i] + share * (positions[i + 1] - positions[i])

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the times (k,) and the positions (k, n) that are kept, oldest first; valid until the next call."""
        kept = slice(max(0, self._count - self._size), self._count)
        return self._times[kept], self._positions[kept]


def prefix(
    now: float, dt: float, history: History, ahead: Trajectory | None, plan: GridPlan | None, history_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return (times (r,) s from ``now``, positions (r, n)): what was and will be executed, a policy step ``dt`` apart.

    ``ahead``: the trajectory that is being executed; ``plan``: the plan that goes on behind its window, if any. Without
    ``plan``, what ``ahead`` says to its end (a stop, a hold) is what will be executed.
    """
    if ahead is None:
        return np.zeros(0), np.zeros((0, 0))
    times, positions = history.arrays()
    past = int(np.searchsorted(times, now - 1e-9))
    # A trajectory that began before now contributes what is still to come, from its value at now on.
    last = len(ahead.times) if plan is None or ahead.brake_from is None else ahead.brake_from + 1
    own = ahead.start + ahead.times[:last]
    coming = int(np.searchsorted(own, now + 1e-9))
    knots, rows = [times[:past], [now], own[coming:]], [ahead.sample(now)[0][None, :], ahead.positions[coming:last]]
    if past:
        rows.insert(0, positions[:past])
    if plan is not None:
        later = plan.grid.at_or_after(max(float(own[-1]), now) + 1e-5) - plan.first
        if 0 <= later < len(plan.positions):
            knots.append(plan.grid.time(plan.first + later) + plan.grid.period * np.arange(len(plan.positions) - later))
            rows.append(plan.positions[later:])
    t, p = np.concatenate(knots), np.concatenate(rows)
    back = math.floor((now - max(float(t[0]), now - history_s)) / dt + 1e-9)
    on = math.floor((float(t[-1]) - now) / dt + 1e-9)
    asked = dt * np.arange(-back, on + 1)
    if len(t) == 1:
        return asked, np.repeat(p, len(asked), axis=0)
    at = np.interp(now + asked, t, np.arange(len(t)))  # fractional rows
    i = np.minimum(at.astype(np.intp), len(t) - 2)
    below = p[i]
    return asked, below + (at - i)[:, None] * (p[i + 1] - below)
