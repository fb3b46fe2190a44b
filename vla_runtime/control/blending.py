"""How a new plan takes over from the old: what is followed, and how fast what is left between them is made good.

The executor never jumps to a plan: it *follows* one (:mod:`vla_runtime.control.tracking`) from wherever the last
command left off. So a blend is two things: the plan that is followed (the newest, or a mean of several), and a fade
added to it, which begins at the command and ends at zero.

``cut``        the newest plan and no fade: as fast as the limits allow.
``crossfade``  the newest plan; the offset fades in ``blend_s``, with continuous velocity, and never by moving against
               the plan's own direction: where the plan moves forward, a joint that is ahead of it waits.
``rtc``        real-time chunking: the new plan was computed to agree with what was committed meanwhile (the policy's
               part), so only a small residual is left; it fades in ``rtc_blend_s``.
``ensemble``   the mean of every plan that covers an instant, weighted exp(-m i), i = 0 the oldest (ACT, Zhao et al.
               2023); what the weights' change leaves fades as in ``crossfade``.

Joints marked discrete are stepped to the newest plan at once in every mode, and never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vla_runtime.control.resample import GridPlan

BLENDS = ("cut", "crossfade", "rtc", "ensemble")


def ensemble_weights(count: int, m: float) -> np.ndarray:
    """Return ACT's normalised weights exp(-m i), (count,), i = 0 the oldest prediction."""
    weights = np.exp(-m * np.arange(count))
    return weights / weights.sum()


class PlanStack:
    """The plans that may still be followed, oldest first. Without ``ensemble``, only the newest is kept."""

    def __init__(self, discrete: np.ndarray, ensemble: bool, m: float, most: int, plans: Sequence[GridPlan] = ()):
        self._discrete, self._ensemble, self._m, self._most = discrete, ensemble, m, most
        self._plans = list(plans[-most:] if ensemble else plans[-1:])

    @property
    def plans(self) -> tuple[GridPlan, ...]:
        """The plans that are kept, oldest first."""
        return tuple(self._plans)

    @property
    def newest(self) -> GridPlan | None:
        """The plan that was taken in last."""
        return self._plans[-1] if self._plans else None

    @property
    def alone(self) -> bool:
        """Whether only one plan is followed."""
        return len(self._plans) == 1

    def push(self, plan: GridPlan) -> None:
        """Take in the newest plan."""
        keep = self._plans[-(self._most - 1) :] if self._ensemble and self._most > 1 else []
        self._plans = [*keep, plan]

    def clear(self) -> None:
        """Forget every plan."""
        self._plans = []

    def forget_before(self, k: int) -> None:
        """Drop older plans that end before grid point ``k``."""
        if len(self._plans) > 1:
            self._plans = [p for p in self._plans[:-1] if p.last >= k] + self._plans[-1:]

    def window(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (last - first + 1, n) at these grid points; the newest must cover them."""
        newest = self._plans[-1]
        rows = slice(first - newest.first, last - newest.first + 1)
        if len(self._plans) == 1:
            return newest.positions[rows], newest.velocities[rows]
        positions, velocities = newest.positions[rows].copy(), newest.velocities[rows].copy()
        mixed = ~self._discrete
        for i, k in enumerate(range(first, last + 1)):
            covering = [plan for plan in self._plans if plan.first <= k <= plan.last]
            if len(covering) > 1:
                weights = ensemble_weights(len(covering), self._m)
                at = [k - plan.first for plan in covering]
                positions[i, mixed] = weights @ np.array([p.positions[j, mixed] for p, j in zip(covering, at)])
                velocities[i, mixed] = weights @ np.array([p.velocities[j, mixed] for p, j in zip(covering, at)])
        return positions, velocities

    def at(self, t: float, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return position and velocity (n,), (n,) at steady time ``t`` just before grid point ``k``."""
        position, velocity = self._plans[-1].at(t)
        covering = [plan for plan in self._plans if plan.t0 <= t and k <= plan.last]
        if len(covering) > 1:
            weights = ensemble_weights(len(covering), self._m)
            mixed = ~self._discrete
            both = [plan.at(t) for plan in covering]
            position[mixed] = weights @ np.array([p[mixed] for p, _ in both])
            velocity[mixed] = weights @ np.array([v[mixed] for _, v in both])
        return position, velocity


class Fade:
    """What is added to a plan so that it begins at the command: an offset that goes to zero in ``duration`` (n,) s.

    The cubic from offset ``offset`` (n,) and its rate ``rate`` (n,) at ``start`` to zero and zero: the least squared
    acceleration there is (and so of bounded acceleration: :func:`fade_durations`). A duration of 0 adds nothing.
    """

    def __init__(self, start: float, offset: np.ndarray, rate: np.ndarray, duration: np.ndarray):
        fades = duration > 0.0
        self._start = start
        self._duration = np.where(fades, duration, 1.0)
        self._offset = np.where(fades, offset, 0.0)
        self._slope = np.where(fades, rate * duration, 0.0)
        self.end = start + float(duration.max(initial=0.0))

    def at(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what is added to positions and velocities (m, n) at steady ``times`` (m,)."""
        u = np.minimum((times[:, None] - self._start) / self._duration, 1.0)
        left = 1.0 - u
        added = left * left * (self._offset * (1.0 + 2.0 * u) + self._slope * u)
        rate = left * (self._slope * (1.0 - 3.0 * u) - 6.0 * self._offset * u) / self._duration
        return added, rate


def fade_durations(
    offset: np.ndarray, rate: np.ndarray, seconds: float, acceleration: np.ndarray, speed: np.ndarray
) -> np.ndarray:
    """Return ``seconds``, or longer where the fade of an offset would exceed these accelerations or speeds: (n,) s.

    The cubic's acceleration is largest at its ends: |6 e / T^2 + 4 w / T| at most; its speed is 1.5 e / T for w = 0.
    """
    e, w = np.abs(offset), np.abs(rate)
    gentle = (2.0 * w + np.sqrt(4.0 * w * w + 6.0 * acceleration * e)) / acceleration
    return np.maximum(np.maximum(seconds, gentle), 1.5 * e / speed)
