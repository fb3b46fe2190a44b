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


class Tracker:
    """Follows plans for joints with these limits; the stop that must stay possible is on a grid of ``brake_step_s``."""

    def __init__(self, limits: Limits, brake_step_s: float):
        self._limits, self._brake_step = limits, brake_step_s
        self._most = limits.acceleration.tolist()
        self._fastest = limits.velocity.tolist()
        self._jerk = limits.jerk.tolist()
        self._lower, self._upper = limits.lower.tolist(), limits.upper.tolist()
        # Farther than this from its limits a joint can always stop.
        self._far = np.array(
            [stopping_distance(v, a, a, j, brake_step_s) for v, a, j in zip(self._fastest, self._most, self._jerk)]
        )

    def follow(
        self,
        position: np.ndarray,
        velocity: np.ndarray,
        times: np.ndarray,
        plan_positions: np.ndarray,
        plan_velocities: np.ndarray,
        reach: np.ndarray,
        forward: np.ndarray,
        direction: np.ndarray,
    ) -> Course:
        """Follow a plan from a state.

        ``position``, ``velocity`` (n,): the state at ``times[0]``; ``times`` (m+1,) s; ``plan_positions``,
        ``plan_velocities`` (m+1, n): what is followed, at these times; ``reach`` (n,): acceleration relative to the
        plan with which an offset is worked off; ``direction`` (m+1, n): velocities that say which way the plan itself
        goes (without what a blend adds); a joint does not move against it where it is faster than ``forward`` (n,)
        (inf: never mind).
        """
        segments = _Segments(times, plan_positions, plan_velocities, direction, forward)
        free, near = self._free(segments)
        offset, rate = position - plan_positions[0], velocity - plan_velocities[0]
        on = free.all(axis=0) & (np.abs(offset) <= _SAME_PLACE) & (np.abs(rate) <= _SAME_SPEED)
        positions, velocities = plan_positions[1:].copy(), plan_velocities[1:].copy()
        acceleration = segments.feed_out[-1].copy()
        on_plan = True
        for j in np.flatnonzero(~on).tolist():
            positions[:, j], velocities[:, j], acceleration[j], arrived = self._lead(
                j, float(position[j]), float(velocity[j]), segments, free[:, j].tolist(), bool(near[j]), float(reach[j])
            )
            on_plan &= arrived
        return Course(positions, velocities, acceleration, on_plan)

    def free(self, period_s: float, positions: np.ndarray, velocities: np.ndarray) -> np.ndarray:
        """Say which steps of a plan on a grid keep every limit as they are: (m-1,) bool for m points."""
        if len(positions) < 2:
            return np.zeros(0, bool)
        times = period_s * np.arange(len(positions))
        never = np.full(positions.shape[1], np.inf)
        return self._free(_Segments(times, positions, velocities, velocities, never))[0].all(axis=1)

    def _free(self, s: _Segments) -> tuple[np.ndarray, np.ndarray]:
        """Say which steps (m, n) may be taken as planned, and which joints (n,) come near a position limit."""
        limits = self._limits
        v = s.velocities
        low, high = np.minimum(v[:-1], v[1:]), np.maximum(v[:-1], v[1:])
        bend = s.bend
        free = np.maximum(np.abs(s.feed_in), np.abs(s.feed_out)) <= limits.acceleration * (1.0 + 1e-9)
        free &= np.maximum(high, -low) + bend <= limits.velocity * (1.0 + 1e-9)
        free &= (s.ahead == 0.0) | (np.where(s.ahead > 0.0, low, -high) >= bend)
        room = np.minimum(limits.upper - s.positions[1:], s.positions[1:] - limits.lower)
        close = room < self._far
        for i, j in np.argwhere(close & (v[1:] != 0.0)).tolist():
            if self._too_near(j, float(s.positions[i + 1, j]), float(v[i + 1, j]), float(s.feed_out[i, j])):
                free[i, j] = False
        return free, close.any(axis=0)

    def _lead(
        self, j: int, p: float, v: float, s: _Segments, free: list[bool], near: bool, reach: float
    ) -> tuple[list[float], list[float], float, bool]:
        """Step joint ``j`` along its plan: (positions, velocities, acceleration at the end, on the plan at the end)."""
        most, fastest = self._most[j], self._fastest[j]
        plan_p, plan_v = s.positions[:, j].tolist(), s.velocities[:, j].tolist()
        feed_in, feed_out, ahead = s.feed_in[:, j].tolist(), s.feed_out[:, j].tolist(), s.ahead[:, j].tolist()
        reach = min(reach, max(most - max(map(abs, (*feed_in, *feed_out))), _SPARE * most))
        # A joint far from its plan may come near a limit that the plan keeps away from.
        near = near or min(self._upper[j] - p, p - self._lower[j]) < self._far[j]
        positions, velocities, a1, arrived = [], [], 0.0, False
        for k, h in enumerate(s.steps):
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
            a0, a1 = _clip(feed_in[k] + push, most), _clip(feed_out[k] + push, most)
            end = v + 0.5 * h * (a0 + a1)
            bend = 0.125 * h * abs(a1 - a0)  # how far the velocity may leave its chord within the step
            low, high = (v, end) if v < end else (end, v)
            back = ahead[k] > 0.0 and low < bend or ahead[k] < 0.0 and -high < bend
            if back or high + bend > fastest or low - bend < -fastest:
                kept = _clip(end, fastest)
                a0 = a1 = _clip(((0.0 if kept * ahead[k] < 0.0 else kept) - v) / h, most)
                end = v + h * a0
            after = p + h * v + h * h / 6.0 * (2.0 * a0 + a1)
            if near and self._too_near(j, after, end, a1):
                a1 = self._gentler(j, p, v, (end - v) / h, h)
                end, after = v + h * a1, p + h * v + 0.5 * h * h * a1
            p, v = after, end
            positions.append(p)
            velocities.append(v)
        arrived = abs(p - plan_p[-1]) <= _SAME_PLACE and abs(v - plan_v[-1]) <= _SAME_SPEED
        return positions, velocities, a1, arrived

    def _too_near(self, j: int, p: float, v: float, a: float) -> bool:
        """Say whether a stop would not end before the position limit ahead; at rest, there is none ahead."""
        if v == 0.0:
            return False
        room = self._upper[j] - p if v > 0.0 else p - self._lower[j]
        return stopping_distance(v, a, self._most[j], self._jerk[j], self._brake_step) > room + 1e-9

    def _gentler(self, j: int, p: float, v: float, wish: float, h: float) -> float:
        """Find the constant acceleration nearest to ``wish`` after which a stop still fits; else the strongest braking.

        Braking with all there is, but not into reverse, is what is begun with: from a state that could stop, it can
        still stop.
        """
        heading = 1.0 if v + h * wish > 0.0 else -1.0
        good, bad = -heading * min(max(heading * v / h, 0.0), self._most[j]), wish
        for _ in range(_BISECTIONS):
            middle = 0.5 * (good + bad)
            if self._too_near(j, p + h * v + 0.5 * h * h * middle, v + h * middle, middle):
                bad = middle
            else:
                good = middle
        return good


class _Segments:
    """The steps of a plan between given times, as cubics: acceleration at each step's start and end, and so on."""

    def __init__(self, times, positions, velocities, direction, forward):
        self.positions, self.velocities = positions, velocities
        widths = times[1:] - times[:-1]
        self.steps = widths.tolist()
        h = widths[:, None]
        slope = (positions[1:] - positions[:-1]) / h
        v0, v1 = velocities[:-1], velocities[1:]
        self.feed_in = (6.0 * slope - 4.0 * v0 - 2.0 * v1) / h
        self.feed_out = (2.0 * v0 + 4.0 * v1 - 6.0 * slope) / h
        self.bend = (0.125 * h) * np.abs(self.feed_out - self.feed_in)
        d0, d1 = direction[:-1], direction[1:]
        # Which way a joint must not leave during the step: the plan's own, where it is fast enough at both ends.
        self.ahead = np.where(np.minimum(np.abs(d0), np.abs(d1)) > forward, np.sign(d0 + d1), 0.0) * (d0 * d1 > 0.0)


def _clip(value: float, most: float) -> float:
    return most if value > most else -most if value < -most else value
