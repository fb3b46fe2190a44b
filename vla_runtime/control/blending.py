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

import math
from collections.abc import Sequence
from dataclasses import replace

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
        self._discrete, self._m = discrete, m
        self._most = most if ensemble else 1
        self.plans = tuple(plans[-self._most :])

    def push(self, plan: GridPlan) -> None:
        """Take in the newest plan; those that end before it begins are dropped."""
        self.plans = (*(p for p in self.plans if p.last >= plan.first), plan)[-self._most :]

    def clear(self) -> None:
        """Forget every plan."""
        self.plans = ()

    def followed(self) -> GridPlan:
        """Return what is followed: the newest plan, averaged at each of its points with those that cover it too."""
        newest = self.plans[-1]
        if len(self.plans) == 1:
            return newest
        spans = [(max(p.first, newest.first), min(p.last, newest.last)) for p in self.plans]
        here = [slice(first - newest.first, last - newest.first + 1) for first, last in spans]
        covering = np.zeros(len(newest.positions), dtype=np.intp)
        for rows in here:
            covering[rows] += 1
        weights = np.zeros((len(self.plans) + 1, len(self.plans)))
        for count in range(1, len(self.plans) + 1):
            weights[count, :count] = ensemble_weights(count, self._m)
        older = np.zeros_like(covering)  # of the plans that cover a point, those before this one
        positions, velocities = np.zeros_like(newest.positions), np.zeros_like(newest.velocities)
        for plan, rows, (first, last) in zip(self.plans, here, spans):
            there = slice(first - plan.first, last - plan.first + 1)
            weight = weights[covering[rows], older[rows]][:, None]
            positions[rows] += weight * plan.positions[there]
            velocities[rows] += weight * plan.velocities[there]
            older[rows] += 1
        positions = np.where(self._discrete, newest.positions, positions)
        velocities = np.where(self._discrete, newest.velocities, velocities)
        return replace(newest, positions=positions, velocities=velocities)


class Fade:
    """What is added to a plan so that it begins at the command: an offset that goes to zero in ``duration`` (n,) s.

    The cubic from offset ``offset`` (n,) and its rate ``rate`` (n,) at ``start`` to zero and zero: the least squared
    acceleration there is (and so of bounded acceleration: :func:`fade_duration`). A duration of 0 adds nothing.
    Begun anew on the way, with the time that is left, it is the same curve. ``ends`` (n,), ``end``: steady seconds.
    """

    def __init__(self, start: float, offset: np.ndarray, rate: np.ndarray, duration: np.ndarray):
        fades = duration > 0.0
        self._start = start
        self._duration = duration + ~fades
        self._offset = offset * fades
        self._rate = rate * fades
        slope = self._rate * duration
        self._bend = 2.0 * self._offset + slope
        self._turn = (6.0 * self._offset + 3.0 * slope) / self._duration
        self.ends = start + duration
        self.end = float(self.ends.max())

    def at(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what is added to positions and velocities (m, n) at steady ``times`` (m,)."""
        u = np.minimum((times - self._start)[:, None] / self._duration, 1.0)
        left = 1.0 - u
        # (1-u)^2 (o (1 + 2u) + w T u), and its derivative by time.
        return left * left * (self._offset + u * self._bend), left * (self._rate - u * self._turn)


def fade_duration(offset: float, rate: float, seconds: float, most: float, speed: float) -> float:
    """Return ``seconds``, or what the fade of one joint's offset must take to keep an acceleration and a speed: s.

    ``most``: the acceleration, ``speed``: the speed that the fade may add. Shorter where the offset already shrinks so
    fast (rate w towards zero) that the cubic would overshoot: it does not for T <= 3 e / w. The cubic's acceleration is
    largest at its ends, |6 e / T^2 + 4 w / T| and |6 e / T^2 + 2 w / T|; its speed, for w = 0, is at most 1.5 e / T.
    """
    e, w, root = abs(offset), abs(rate), 6.0 * most * abs(offset)
    wanted = max(seconds, 1.5 * e / speed)
    if offset * rate < 0.0 and w * w < 0.25 * root:
        return max(min(wanted, 3.0 * e / w), (math.sqrt(w * w + root) - w) / most)
    return max(wanted, (2.0 * w + math.sqrt(4.0 * w * w + root)) / most)
