"""Following a plan inside the limits, on the message's own points.

Where the plan keeps the limits and the state is on it, the points are the plan's own, without lag. A joint that is
off its plan, or whose plan asks for too much, is stepped: its offset is worked off along the curve of constant
deceleration (no overshoot; it lands in two steps, exactly), inside the limits of velocity and acceleration, never
against the plan's own direction where that is asked, and never so near to a position limit that the stop which ends
every message would not fit. Every step is a cubic whose acceleration is linear in time, so the limits that hold at
the points hold for what a controller interpolates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.brake import stopping_distance
from vla_runtime.control.limits import Limits

_BISECTIONS = 14
_SPARE = 0.25
"""Of the acceleration limit: what works off an offset even where the plan itself takes all there is."""
_TOLERANCE = 1.0 + 1e-9
_ON_LIMIT = 1e-9
"""Rounding: a joint this far beyond a position limit is on it."""
_SAME_PLACE, _SAME_SPEED = 1e-10, 1e-8
"""A state this near to the plan is on it; to be set onto it costs less than a thousandth of any real limit."""


@dataclass(frozen=True, eq=False)
class Course:
    """Points after a start: ``positions`` (m, n), ``velocities`` (m, n), ``acceleration`` (n,) at the last.

    ``on_plan``: every joint is on its plan at the last point.
    """

    positions: np.ndarray
    velocities: np.ndarray
    acceleration: np.ndarray
    on_plan: bool


@dataclass(frozen=True, eq=False)
class Survey:
    """A plan's rows (m+1) and the m steps between them, looked at before they are followed.

    ``steps`` (m,) s; ``positions``, ``velocities`` (m+1, n); ``feed_in``, ``feed_out`` (m, n): acceleration at the
    start and the end of each step, a cubic; ``ahead`` (m, n): 1 or -1 where a joint must not move the other way;
    ``free`` (m, n): the step keeps every limit as it is.
    """

    steps: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    feed_in: np.ndarray
    feed_out: np.ndarray
    ahead: np.ndarray
    free: np.ndarray

    def rows(self, first: int, last: int) -> Survey:
        """Return the rows ``first`` ... ``last`` and the steps between them."""
        rows, steps = slice(first, last + 1), slice(first, last)
        return Survey(
            self.steps[steps],
            self.positions[rows],
            self.velocities[rows],
            self.feed_in[steps],
            self.feed_out[steps],
            self.ahead[steps],
            self.free[steps],
        )


def direction(velocities: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """Return which way a plan goes in each step, (m, n) for velocities (m+1, n): 1, -1, or 0 where it is slow or turns.

    ``forward`` (n,): the speed above which it counts, at both ends of the step (inf: never).
    """
    d0, d1 = velocities[:-1], velocities[1:]
    return (np.minimum(d0, d1) > forward) * 1.0 - (np.maximum(d0, d1) < -forward)


class Tracker:
    """Follows plans for joints with these limits; the stop that must stay possible is on a grid of ``brake_step_s``."""

    def __init__(self, limits: Limits, brake_step_s: float):
        self._limits, self._brake_step = limits, brake_step_s
        self._most = limits.acceleration.tolist()
        self._fastest = limits.velocity.tolist()
        self._jerk = limits.jerk.tolist()
        self._lower, self._upper = limits.lower.tolist(), limits.upper.tolist()
        # Slower than this a joint can always ease its acceleration below its velocity limit.
        push = limits.acceleration
        self._easy = limits.velocity - push * (0.5 * push / limits.jerk + 0.5 * brake_step_s)
        # Farther than this from its limits a joint can always stop.
        self._far = np.array(
            [stopping_distance(v, a, a, j, brake_step_s) for v, a, j in zip(self._fastest, self._most, self._jerk)]
        )

    def survey(
        self, times: np.ndarray, positions: np.ndarray, velocities: np.ndarray, ahead: np.ndarray | None = None
    ) -> Survey:
        """Look at a plan's steps before they are followed.

        ``times`` (m+1,) s; ``positions``, ``velocities`` (m+1, n): what is followed, at these times; ``ahead`` (m, n):
        1 or -1 where the joint must not move the other way during the step (:func:`direction`); None: nowhere.
        """
        limits = self._limits
        if ahead is None:
            ahead = np.zeros((len(times) - 1, len(limits)))
        h = (times[1:] - times[:-1])[:, None]
        slope = (6.0 / h) * (positions[1:] - positions[:-1])
        v0, v1 = velocities[:-1], velocities[1:]
        twice = 2.0 * (v0 + v1)
        feed_in, feed_out = (slope - twice - 2.0 * v0) / h, (twice + 2.0 * v1 - slope) / h
        bend = (0.125 * h) * np.abs(feed_out - feed_in)  # how far the velocity may leave its chord within a step
        speed, push = np.abs(velocities), np.abs(feed_out)
        free = np.maximum(np.abs(feed_in), push) <= limits.acceleration * _TOLERANCE
        free &= np.maximum(speed[:-1], speed[1:]) + bend <= limits.velocity * _TOLERANCE
        if (speed[1:] > self._easy).any():
            # The stop leads the acceleration to zero first, and the speed still grows meanwhile.
            easing = push * (0.5 / limits.jerk * push + 0.5 * self._brake_step)
            free &= np.sign(feed_out) * v1 + easing <= limits.velocity * _TOLERANCE
        free &= np.minimum(ahead * v0, ahead * v1) >= np.abs(ahead) * bend
        room = np.minimum(limits.upper - positions[1:], positions[1:] - limits.lower)
        if (room < self._far).any():
            for i, j in np.argwhere(self._coarse_way(speed[1:], push) > room).tolist():
                was, p = float(positions[i, j]), float(positions[i + 1, j])
                if self._over(j, was, p, float(v1[i, j]), float(feed_out[i, j])):
                    free[i, j] = False
        return Survey(h[:, 0], positions, velocities, feed_in, feed_out, ahead, free)

    def follow(
        self,
        position: np.ndarray,
        velocity: np.ndarray,
        plan: Survey,
        first: int,
        last: int,
        reach: np.ndarray,
        on_plan: bool = False,
    ) -> Course:
        """Follow a plan from ``position``, ``velocity`` (n,) at its row ``first`` to its row ``last``.

        ``reach`` (n,): acceleration relative to the plan with which an offset is worked off; ``on_plan``: the state is
        known to be the plan's own.
        """
        if on_plan and plan.free[first:last].all():
            rows = slice(first + 1, last + 1)
            return Course(plan.positions[rows], plan.velocities[rows], plan.feed_out[last - 1], True)
        on = (np.abs(position - plan.positions[first]) <= _SAME_PLACE) & plan.free[first:last].all(axis=0)
        on &= np.abs(velocity - plan.velocities[first]) <= _SAME_SPEED
        positions, velocities = plan.positions[first + 1 : last + 1], plan.velocities[first + 1 : last + 1]
        acceleration = plan.feed_out[last - 1]
        arrived_all = True
        if not on.all():
            positions, velocities, acceleration = positions.copy(), velocities.copy(), acceleration.copy()
            for j in np.flatnonzero(~on).tolist():
                positions[:, j], velocities[:, j], acceleration[j], arrived = self._lead(
                    j, float(position[j]), float(velocity[j]), plan, slice(first, last + 1), float(reach[j])
                )
                arrived_all &= arrived
        return Course(positions, velocities, acceleration, arrived_all)

    def _coarse_way(self, speed: np.ndarray, push: np.ndarray) -> np.ndarray:
        """Bound the way of a stop, whichever way it goes: never less than :func:`stopping_distance`."""
        most, jerk = self._limits.acceleration, self._limits.jerk
        ease = push / jerk + self._brake_step
        top = speed + 0.5 * push * ease
        return ease * (speed + push * ease / 3.0) + top * (0.5 * (top / most + most / jerk) + 1.1 * self._brake_step)

    def _lead(
        self, j: int, p: float, v: float, plan: Survey, rows: slice, reach: float
    ) -> tuple[list[float], list[float], float, bool]:
        """Step joint ``j`` along its plan: (positions, velocities, acceleration at the end, on the plan at the end)."""
        most, fastest, jerk, brake_step = self._most[j], self._fastest[j], self._jerk[j], self._brake_step
        plan_p, plan_v = plan.positions[rows, j].tolist(), plan.velocities[rows, j].tolist()
        steps = slice(rows.start, rows.stop - 1)
        feed_in, feed_out = plan.feed_in[steps, j].tolist(), plan.feed_out[steps, j].tolist()
        ahead, free = plan.ahead[steps, j].tolist(), plan.free[steps, j].tolist()
        reach = min(reach, max(most - max(map(abs, (*feed_in, *feed_out))), _SPARE * most))
        positions, velocities, a1, arrived = [], [], 0.0, False
        for k, h in enumerate(plan.steps[steps].tolist()):
            offset, rate = p - plan_p[k], v - plan_v[k]
            arrived = free[k] and abs(offset) <= _SAME_PLACE and abs(rate) <= _SAME_SPEED
            if arrived:
                p, v, a1 = plan_p[k + 1], plan_v[k + 1], feed_out[k]
                positions.append(p)
                velocities.append(v)
                continue
            # Where the offset would be if its rate went to zero within this step; then the rate from which constant
            # deceleration lands on the plan: w^2 / (2 reach) + w h = |rest|.
            rest = offset + 0.5 * h * rate
            wanted = math.copysign(reach * (math.sqrt(h * h + 2.0 * abs(rest) / reach) - h), -rest)
            push = (wanted - rate) / h
            # Too fast towards the plan (it changed, or a limit held the joint back): brake with all there is.
            strongest = most if rate * push < 0.0 and rate * rest < 0.0 else reach
            push = _clip(push, strongest)
            begin, finish = feed_in[k], feed_out[k]
            if not free[k]:  # the plan cannot be followed to the letter: its mean acceleration will do
                begin = finish = 0.5 * (begin + finish)
            a0, a1 = _clip(begin + push, most), _clip(finish + push, most)
            end = v + 0.5 * h * (a0 + a1)
            bend = 0.125 * h * abs(a1 - a0)  # how far the velocity may leave its chord within the step
            low, high = (v, end) if v < end else (end, v)
            back = ahead[k] > 0.0 and low < bend or ahead[k] < 0.0 and -high < bend
            easing = abs(a1) * (0.5 / jerk * abs(a1) + 0.5 * brake_step)
            if (
                back
                or high + bend > fastest
                or low - bend < -fastest
                or math.copysign(end, a1 * end) + easing > fastest
            ):
                a0 = (end - v) / h
                if ahead[k] * end < 0.0:
                    a0 = -v / h
                a0 = min(a0, self._steepest(fastest - v, jerk, h))
                a0 = max(a0, -self._steepest(fastest + v, jerk, h))
                a0 = a1 = _clip(a0, most)
                end = v + h * a0
            after = p + h * v + h * h / 6.0 * (2.0 * a0 + a1)
            if side := self._over(j, p, after, end, a1):
                a1 = self._gentler(j, p, v, (end - v) / h, h, side)
                end, after = v + h * a1, p + h * v + 0.5 * h * h * a1
            p, v = after, end
            positions.append(p)
            velocities.append(v)
        arrived = abs(p - plan_p[-1]) <= _SAME_PLACE and abs(v - plan_v[-1]) <= _SAME_SPEED
        return positions, velocities, a1, arrived

    def _steepest(self, room: float, jerk: float, h: float) -> float:
        """Return the largest acceleration for a step of ``h`` s after which it can be eased within ``room`` of speed.

        h a + a^2 / (2 jerk) + a brake_step / 2 <= room; beyond the limit (room < 0) it leads back.
        """
        if room < 0.0:
            return room / h
        b = h + 0.5 * self._brake_step
        return jerk * (math.sqrt(b * b + 2.0 * room / jerk) - b)

    def _over(self, j: int, was: float, p: float, v: float, a: float) -> int:
        """Say which position limit a stop would not end before: 1 the upper, -1 the lower, 0 neither.

        A joint that is beyond a limit already (``was``: before the step) may stay or come back.
        """
        most, jerk, step, far = self._most[j], self._jerk[j], self._brake_step, self._far[j]
        room = self._upper[j] - p + _ON_LIMIT
        if room < far and (stopping_distance(v, a, most, jerk, step) > max(room, 0.0) or room < 0.0 and p > was):
            return 1
        room = p - self._lower[j] + _ON_LIMIT
        if room < far and (stopping_distance(-v, -a, most, jerk, step) > max(room, 0.0) or room < 0.0 and p < was):
            return -1
        return 0

    def _gentler(self, j: int, p: float, v: float, wish: float, h: float, side: int) -> float:
        """Find the constant acceleration nearest to ``wish`` after which a stop fits before the limit on ``side``.

        The more it pulls away from the limit the better it fits; where not even all there is will do, it is that.
        """
        strongest = min(self._most[j], max(self._steepest(self._fastest[j] + side * v, self._jerk[j], h), 0.0))
        good, bad = -side * strongest, wish
        for _ in range(_BISECTIONS):
            middle = 0.5 * (good + bad)
            if self._over(j, p, p + h * v + 0.5 * h * h * middle, v + h * middle, middle) == side:
                bad = middle
            else:
                good = middle
        return good


def _clip(value: float, most: float) -> float:
    return most if value > most else -most if value < -most else value
