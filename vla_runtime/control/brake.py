"""The stop after every plan: from any state of motion to velocity and acceleration of exactly zero.

A time-optimal profile (Ruckig's, say) changes its jerk at instants that differ from joint to joint and fall between
the points of a message; a controller that draws cubics through sampled positions and velocities then leaves the
acceleration limit by several per cent and jumps in acceleration at every point. So the profile is laid on the
message's own grid: acceleration is linear between grid points, hence every segment *is* the cubic that the controller
draws, and position, velocity and acceleration are continuous in what it executes. The price is at most three grid
steps more than the time-optimal stop (held against Ruckig in the tests).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.finite import all_finite
from vla_runtime.control.limits import Limits

_ATTEMPTS = 200
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
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
    if not (step_s > 0.0 and math.isfinite(step_s)):
        raise ValueError(f"step_s must be a positive time in seconds, got {step_s}")
    speeds, pushes = velocity.tolist(), acceleration.tolist()
    if not (all_finite(position) and all_finite(velocity) and all_finite(acceleration)):
        raise ValueError("cannot stop from a state that is not finite")
    phases = [
        _phases(v, -a, most, jerk * step_s, step_s)
        for v, a, most, jerk in zip(speeds, pushes, limits.acceleration.tolist(), limits.jerk.tolist())
    ]
    n1, n2, n3, held = np.array(phases).T
    steps = n1 + n2 + n3
    count = int(steps.max())
    k = np.arange(count + 1.0)[:, None]
    left = steps - k
    # Built up (or eased) in n1 steps from what there is to what is held for n2, and let go in n3.
    accelerations = np.maximum(1.0 - k / np.maximum(n1, 1.0), 0.0)
    accelerations *= acceleration + held
    accelerations -= held * np.minimum(np.maximum(left / np.maximum(n3, 1.0), 0.0), 1.0)
    accelerations[0] = acceleration
    velocities, positions = np.empty_like(accelerations), np.empty_like(accelerations)
    velocities[0], positions[0] = velocity, position
    before, after = accelerations[:-1], accelerations[1:]
    ((0.5 * step_s) * (before + after)).cumsum(axis=0, out=velocities[1:])
    velocities[1:] += velocity
    # What is left of the velocity at a joint's last step is rounding; the promise is exactly zero.
    velocities *= left > 0.0
    moved = (step_s**2 / 6.0) * (2.0 * before + after)
    moved += step_s * velocities[:-1]
    moved.cumsum(axis=0, out=positions[1:])
    positions[1:] += position
    return Stop(step_s * k[:, 0], positions, velocities, accelerations)


def stopping_distance(velocity: float, acceleration: float, most: float, jerk: float, step_s: float) -> float:
    """Bound how far :func:`brake` takes one joint in the positive direction; never negative.

    (In the negative direction: with both signs turned.) The way of the time-optimal jerk-limited stop, in closed form,
    and what :func:`brake` needs beyond it because it lays the stop on a grid of ``step_s``: a step more to lead a
    positive acceleration to zero, and a step at the highest speed. ``most``, ``jerk``: the joint's limits.
    """
    if acceleration > 0.0:
        ease = acceleration / jerk + step_s
        top = velocity + 0.5 * acceleration * ease
        if top <= 0.0:
            return 0.0
        since = ease * (velocity + acceleration * ease / 3.0)
        return max(since + _from_speed(top, most, jerk), 0.0) + 0.5 * step_s * top
    if velocity <= 0.0:
        return 0.0
    eased = acceleration * acceleration / (2.0 * jerk)
    if velocity <= eased:  # letting go of the brake alone turns the joint round
        way = velocity * velocity / -acceleration
    else:  # as if the braking had been built up from zero: less the way since then
        top = velocity + eased
        way = _from_speed(top, most, jerk) + (top - acceleration * acceleration / (6.0 * jerk)) * acceleration / jerk
    return max(way, 0.0) + 1.1 * step_s * velocity


def _from_speed(speed: float, most: float, jerk: float) -> float:
    """Return the way of the time-optimal stop from a speed, without acceleration."""
    if speed >= most * most / jerk:
        return 0.5 * speed * (speed / most + most / jerk)
    return speed * math.sqrt(speed / jerk)


def _phases(v: float, b: float, most: float, ramp: float, h: float) -> tuple[int, int, int, float]:
    """Choose whole numbers of steps to build up, hold and let go the braking, and what is held: (n1, n2, n3, held).

    ``v`` velocity, ``b`` braking now (minus the acceleration), ``ramp`` the most that it may change in a step of
    ``h`` s. The time-optimal phases rounded up, then lengthened as long as a limit is exceeded. Plain numbers: for the
    few joints of an arm this is several times faster than arrays.
    """
    if v == 0.0 and b == 0.0:
        return 0, 0, 0, 0.0
    rate = v / h  # the sum of the braking over all steps must be this
    side = 1.0
    if rate - b * abs(b) / (2.0 * ramp) < 0.0:
        side, rate, b = -1.0, -rate, -b
    square = ramp * rate + 0.5 * b * b
    peak, plateau = 0.0, 0.0
    if square > most * most:
        peak, plateau = most, (square - most * most) / most
    elif square > 0.0:
        peak = math.sqrt(square)
    n1 = math.ceil((peak - b) / ramp - _ROUNDING)
    n3 = math.ceil(peak / ramp - _ROUNDING)
    if n1 < 1:
        n1 = 1
    if n3 < 1:
        n3 = 1
    n2 = math.ceil((2.0 * peak - b + plateau) / ramp - _ROUNDING) - n1 - n3
    if n2 < 0:
        n2 = 0
    slack = 1.0 + 1e-12
    strongest = (b if b > most else most) * slack
    for _ in range(_ATTEMPTS):
        held = (rate - 0.5 * n1 * b) / (0.5 * (n1 + n3) + n2)
        if b - held > n1 * ramp * slack:  # eased too fast
            n1 += 1
            if n3 > 1 and held <= (n3 - 1) * ramp:
                n3 -= 1
        elif held - b > n1 * ramp * slack or held > strongest:
            n2 += 1
        elif abs(held) > n3 * ramp * slack:
            n3 += 1
        else:
            return n1, n2, n3, side * held
    raise ValueError(f"no stop fits from velocity {side * v:g}: are the acceleration and jerk limits positive?")
