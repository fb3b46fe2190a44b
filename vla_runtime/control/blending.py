"""How a new plan takes over from the old: what is followed, and how fast what is left between them is made good.

The executor never jumps to a plan: it *follows* one (:mod:`vla_runtime.control.tracking`) from wherever the last
command left off. So a blend is two things: the plan that is followed (the newest, or a mean of several) and the
acceleration with which the offset between the command and that plan is worked off.

``cut``        the newest plan, as fast as the limits allow.
``crossfade``  the newest plan; the offset is worked off in ``blend_s``, with continuous velocity, and never by moving
               against the plan's own direction.
``rtc``        real-time chunking: the new plan was computed to agree with what was committed meanwhile (the policy's
               part), so only a small residual is left; as ``crossfade`` in ``rtc_blend_s``.
``ensemble``   the mean of every plan that covers an instant, weighted exp(-m i), i = 0 the oldest (ACT, Zhao et al.
               2023); what the weights' change leaves is worked off as in ``crossfade``.

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


def catch_up_acceleration(offset: np.ndarray, relative: np.ndarray, duration_s: float) -> np.ndarray:
    """Return the constant acceleration that works off an offset in ``duration_s``: (n,).

    ``offset`` (n,): command minus plan; ``relative`` (n,): its rate. Speeding up and slowing down at the same
    acceleration a, from a distance e and a speed w away from the plan, takes w/a + 2 sqrt(e/a + w^2/(2 a^2)); solved
    for a.
    """
    away = np.where(offset < 0.0, -relative, relative)
    b = 2.0 * duration_s * away + 4.0 * np.abs(offset)
    return (b + np.sqrt(b * b + (2.0 * duration_s * away) ** 2)) / (2.0 * duration_s**2)
