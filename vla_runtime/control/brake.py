"""The stop after every plan: from any state of motion to velocity and acceleration of exactly zero.

A time-optimal profile (Ruckig's, say) changes its jerk at instants that differ from joint to joint and fall between
the points of a message; a controller that draws cubics through sampled positions and velocities then leaves the
acceleration limit by several per cent and jumps in acceleration at every point. So the profile is laid on the
message's own grid: acceleration is linear between grid points, hence every segment *is* the cubic that the controller
draws, and position, velocity and acceleration are continuous in what it executes. The price is at most a few grid
steps more than the time-optimal stop (held against Ruckig in the tests).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.limits import Limits

_FIT_ATTEMPTS = 64


@dataclass(frozen=True)
class Stop:
    """A stop on a grid: row 0 is the state it starts from, the last row is at rest.

    ``times`` (m,) s from the start, ``positions`` (m, n), ``velocities`` (m, n), ``accelerations`` (m, n); joint
    units (rad or m). Between rows, acceleration is linear. m is 1 when every joint rests already.
    """

    times: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    accelerations: np.ndarray


def brake(position: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray, limits: Limits, step_s: float) -> Stop:
    """Stop every joint as soon as its acceleration and jerk limits allow, each for itself.

    ``position``, ``velocity``, ``acceleration``: (n,) the state to stop from. An acceleration beyond the limit is
    accepted and led back at the jerk limit. ``step_s``: the grid, s. Position limits are not looked at: whoever plans
    up to this state keeps :func:`stopping_distance` free. Raises ``ValueError`` on a non-finite state or step.
    """
    if not (step_s > 0.0 and np.isfinite(step_s)):
        raise ValueError(f"step_s must be a positive time in seconds, got {step_s}")
    if not (np.isfinite(position).all() and np.isfinite(velocity).all() and np.isfinite(acceleration).all()):
        raise ValueError("cannot stop from a state that is not finite")
    ramp = limits.jerk * step_s
    # b = -acceleration at the grid points 1..N-1 (b_0 given, b_N = 0); their sum must be this, for v_N = 0:
    start = -acceleration
    needed = velocity / step_s - 0.5 * start
    steps, low, high = _shortest(velocity, start, needed, limits, ramp, step_s)
    count = low.shape[0]
    if count == 0:
        rest = np.zeros((1, len(velocity)))
        return Stop(np.zeros(1), position[None, :].copy(), rest, rest.copy())
    level = _fill(low, high, needed)
    accelerations = np.concatenate((acceleration[None, :], -np.clip(level, low, high)))
    gain = 0.5 * step_s * (accelerations[:-1] + accelerations[1:])
    velocities = np.concatenate((velocity[None, :], velocity + np.cumsum(gain, axis=0)))
    # What is left of the velocity at a joint's last step is rounding; the promise is exactly zero.
    velocities[np.arange(count + 1)[:, None] >= steps] = 0.0
    moved = step_s * velocities[:-1] + step_s**2 / 6.0 * (2.0 * accelerations[:-1] + accelerations[1:])
    positions = np.concatenate((position[None, :], position + np.cumsum(moved, axis=0)))
    return Stop(step_s * np.arange(count + 1), positions, velocities, accelerations)


def stopping_distance(
    velocity: np.ndarray, acceleration: np.ndarray, limits: Limits, step_s: float, margin_steps: float = 1.0
) -> np.ndarray:
    """Bound the way that :func:`brake` needs in the direction of ``velocity``; (..., n), never negative.

    The time-optimal way of a jerk-limited stop, in closed form, and ``margin_steps`` grid steps at the highest speed
    on it for the profile's being laid on a grid.
    """
    speed = np.abs(velocity)
    onward = acceleration * np.sign(velocity)
    eased = np.abs(onward)
    # As if the acceleration had been ramped up from zero: the speed at that instant, and the way since then.
    top = speed + onward * eased / (2.0 * limits.jerk)
    released = top <= 0.0  # letting go of the brake alone turns the joint round
    top = np.where(onward < 0.0, speed + onward**2 / (2.0 * limits.jerk), top)
    knee = limits.acceleration**2 / limits.jerk
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(
            top >= knee,
            0.5 * top * (top / limits.acceleration + limits.acceleration / limits.jerk),
            top * np.sqrt(top / limits.jerk),
        )
        since = (top * eased - eased**3 / (6.0 * limits.jerk)) / limits.jerk
        way = np.where(released, speed**2 / np.where(eased > 0.0, eased, 1.0), whole + np.copysign(since, onward))
    return np.maximum(way, 0.0) + margin_steps * step_s * np.maximum(speed, np.where(onward > 0.0, top, 0.0))


def _shortest(velocity, start, needed, limits: Limits, ramp, step_s):
    """Find each joint's smallest number of steps, and the corridor of b that goes with it: (steps, low, high)."""
    steps = np.ceil(_optimal_duration(velocity, -start, limits) / step_s - 1e-9)
    cap = limits.acceleration
    for _ in range(_FIT_ATTEMPTS):
        count = int(steps.max())
        k = np.arange(1, count + 1)[:, None]
        end = ramp * np.maximum(steps - k, 0.0)
        climb = ramp * k
        high = np.minimum(start + climb, end)
        low = np.maximum(start - climb, -end)
        most = np.minimum(high, np.maximum(cap, low)).sum(axis=0)
        least = np.maximum(low, np.minimum(-cap, high)).sum(axis=0)
        slack = 1e-12 * (1.0 + np.abs(needed))
        short = (most < needed - slack) | (least > needed + slack) | (ramp * steps < np.abs(start) - slack)
        if not short.any():
            return steps, low, high
        steps = steps + short
    raise ValueError("no stop fits: are the acceleration and jerk limits positive?")


def _optimal_duration(velocity, acceleration, limits: Limits):
    """Seconds of the time-optimal jerk-limited stop, per joint."""
    jerk, most = limits.jerk, limits.acceleration
    turned = velocity + acceleration * np.abs(acceleration) / (2.0 * jerk)
    side = np.where(turned < 0.0, -1.0, 1.0)
    v, a = side * velocity, side * acceleration
    free = np.maximum(v + a * a / (2.0 * jerk), 0.0)
    peak = np.minimum(np.sqrt(np.maximum(jerk * v + 0.5 * a * a, 0.0)), most)
    hold = np.maximum(free - peak * peak / jerk, 0.0) / most
    return np.maximum(a + peak, 0.0) / jerk + peak / jerk + hold


def _fill(low: np.ndarray, high: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Find, per column, the level L with sum(clip(L, low, high)) = needed: (n,). The sum is piecewise linear in L."""
    edges = np.concatenate((low, high))
    order = np.argsort(edges, axis=0)
    edges = np.take_along_axis(edges, order, axis=0)
    # A row begins to follow L at its low edge and stops at its high edge.
    active = np.cumsum(np.where(order < low.shape[0], 1, -1), axis=0)[:-1]
    sums = low.sum(axis=0) + np.concatenate(
        (np.zeros((1, edges.shape[1])), np.cumsum(np.diff(edges, axis=0) * active, axis=0))
    )
    column = np.arange(edges.shape[1])
    piece = np.clip((sums <= needed).sum(axis=0) - 1, 0, active.shape[0] - 1)
    slope = active[piece, column]
    level = edges[piece, column] + np.where(slope > 0, (needed - sums[piece, column]) / np.maximum(slope, 1), 0.0)
    return np.clip(level, edges[piece, column], edges[piece + 1, column])
