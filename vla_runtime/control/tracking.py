"""Following a plan inside the limits, step by step on the message's own points.

The state (position, velocity) is led onto the plan and then *is* the plan: as long as the plan keeps the limits and
the state is on it, the points are the plan's own, without lag. Off the plan, the offset is worked off along the curve
of constant deceleration (no overshoot, and it lands in two steps, exactly). Every step is a cubic whose acceleration
is linear in time, so the limits that hold at the points hold for what a controller interpolates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.brake import stopping_distance
from vla_runtime.control.limits import Limits

_BISECTIONS = 12
_SPARE = 0.25
"""Of the acceleration limit: what is used to work off an offset even where the plan itself takes all there is."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The points after the start: ``positions`` (m, n), ``velocities`` (m, n); ``acceleration`` (n,) at the last."""

    positions: np.ndarray
    velocities: np.ndarray
    acceleration: np.ndarray


def follow(
    position: np.ndarray,
    velocity: np.ndarray,
    times: np.ndarray,
    plan_positions: np.ndarray,
    plan_velocities: np.ndarray,
    limits: Limits,
    reach: np.ndarray,
    forward: np.ndarray,
    brake_step_s: float,
) -> Steps:
    """Follow a plan from a state.

    ``position``, ``velocity`` (n,): the state at ``times[0]``; ``times`` (m+1,) s; ``plan_positions``,
    ``plan_velocities`` (m+1, n): the plan at these times; ``reach`` (n,): acceleration relative to the plan with which
    an offset is worked off; ``forward`` (n,): speed of the plan above which the joint must not move against it (inf:
    never mind); ``brake_step_s``: the grid of the stop that must stay possible before the position limits.
    """
    steps = np.diff(times)
    h = steps[:, None]
    slope = np.diff(plan_positions, axis=0) / h
    v0, v1 = plan_velocities[:-1], plan_velocities[1:]
    feed_in = (6.0 * slope - 4.0 * v0 - 2.0 * v1) / h
    feed_out = (-6.0 * slope + 2.0 * v0 + 4.0 * v1) / h
    ahead = np.where((np.abs(v1) > forward) & (v0 * v1 >= 0.0), np.sign(v1), 0.0)
    spare = limits.acceleration - np.maximum(np.abs(feed_in), np.abs(feed_out)).max(axis=0)
    reach = np.minimum(reach, np.maximum(spare, _SPARE * limits.acceleration))
    problem = _Problem(steps, plan_positions, plan_velocities, feed_in, feed_out, ahead, limits, reach, brake_step_s)
    positions, velocities, accelerations = _run(problem, position, velocity, guarded=False)
    if _too_near(positions, velocities, accelerations, limits, brake_step_s).any():
        positions, velocities, accelerations = _run(problem, position, velocity, guarded=True)
    return Steps(positions, velocities, accelerations[-1])


@dataclass(frozen=True, eq=False)
class _Problem:
    steps: np.ndarray
    plan_positions: np.ndarray
    plan_velocities: np.ndarray
    feed_in: np.ndarray
    feed_out: np.ndarray
    ahead: np.ndarray
    limits: Limits
    reach: np.ndarray
    brake_step_s: float


def _run(q: _Problem, p: np.ndarray, v: np.ndarray, guarded: bool):
    """Step along the plan: (positions, velocities, accelerations at the end of each step), (m, n) each."""
    shape = (len(q.steps), len(p))
    positions, velocities, accelerations = np.empty(shape), np.empty(shape), np.empty(shape)
    most, fastest, reach = q.limits.acceleration, q.limits.velocity, q.reach
    for k, h in enumerate(q.steps.tolist()):
        offset = p - q.plan_positions[k]
        rate = v - q.plan_velocities[k]
        # Where the offset would be if its rate went to zero within this step; then the rate from which constant
        # deceleration lands on the plan: w^2 / (2 reach) + w h = |rest|.
        rest = offset + (0.5 * h) * rate
        wanted = np.sqrt(h * h + 2.0 * np.abs(rest) / reach)
        wanted -= h
        wanted *= reach
        wanted = np.copysign(wanted, -rest)
        push = (wanted - rate) / h
        # Too fast towards the plan (it changed, or a limit held the joint back): brake with all there is.
        strongest = np.where((rate * push < 0.0) & (rate * rest < 0.0), most, reach)
        push = np.minimum(np.maximum(push, -strongest), strongest)
        a0 = np.minimum(np.maximum(q.feed_in[k] + push, -most), most)
        a1 = np.minimum(np.maximum(q.feed_out[k] + push, -most), most)
        end = v + (0.5 * h) * (a0 + a1)
        bend = (0.125 * h) * np.abs(a1 - a0)  # how far the velocity may leave its chord within the step
        low, high = np.minimum(v, end), np.maximum(v, end)
        ahead = q.ahead[k]
        plain = (high + bend > fastest) | (low - bend < -fastest)
        plain |= np.where(ahead > 0.0, low, -high) < np.where(ahead == 0.0, -np.inf, bend)
        if plain.any():
            kept = np.minimum(np.maximum(end, -fastest), fastest)
            kept = np.where(kept * ahead < 0.0, 0.0, kept)
            flat = np.minimum(np.maximum((kept - v) / h, -most), most)
            a0, a1 = np.where(plain, flat, a0), np.where(plain, flat, a1)
            end = v + (0.5 * h) * (a0 + a1)
        after = p + h * v + (h * h / 6.0) * (2.0 * a0 + a1)
        if guarded:
            near = _too_near(after, end, a1, q.limits, q.brake_step_s)
            if near.any():
                flat = _gentler(p, v, (end - v) / h, h, q.limits, q.brake_step_s)
                a1 = np.where(near, flat, a1)
                end = np.where(near, v + h * flat, end)
                after = np.where(near, p + h * v + (0.5 * h * h) * flat, after)
        p, v = after, end
        positions[k], velocities[k], accelerations[k] = p, v, a1
    return positions, velocities, accelerations


def _too_near(p, v, a, limits: Limits, step_s: float) -> np.ndarray:
    """Say where a stop would not end before the position limit ahead; on a limit at rest is allowed."""
    room = np.where(v > 0.0, limits.upper - p, p - limits.lower)
    return (stopping_distance(v, a, limits, step_s) > room + 1e-9) & (v != 0.0)


def _gentler(p, v, wish, h: float, limits: Limits, step_s: float) -> np.ndarray:
    """Find the constant acceleration nearest to ``wish`` after which a stop still fits; else brake to zero velocity.

    Braking with all there is, but not into reverse, is always among what is tried: from a state that could stop it
    can still stop.
    """
    heading = np.where(v + h * wish > 0.0, 1.0, -1.0)
    good, bad = -heading * np.clip(heading * v / h, 0.0, limits.acceleration), wish
    for _ in range(_BISECTIONS):
        middle = 0.5 * (good + bad)
        near = _too_near(p + h * v + (0.5 * h * h) * middle, v + h * middle, middle, limits, step_s)
        good, bad = np.where(near, good, middle), np.where(near, middle, bad)
    return good
