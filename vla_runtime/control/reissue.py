"""Saying the same motion again from a later instant, in the form of a message.

The part of a cubic that is left is a cubic through its end points, so a trajectory re-based at ``now`` is the same
curve: re-sent 50 times a second, it moves nothing.
"""

from dataclasses import replace

import numpy as np

from vla_runtime.control.brake import brake
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import MIN_SPACING_S, Trajectory

REST_S = 0.1  # a message reaches at least this far, so that it cannot have ended when the controller reads it
_NS = 1e-9


def rebased(trajectory: Trajectory, now: float) -> Trajectory:
    """Return what is left of ``trajectory`` at ``now``: point 0 is its sample there, then its remaining points.

    A point less than 4 ms ahead cannot be kept; the curve is sampled 4 ms ahead instead. A trajectory that has ended
    (or nearly) is followed by its resting position for at least 0.1 s.
    """
    offset = now - trajectory.start
    if offset == 0.0 and trajectory.times[-1] >= REST_S:
        return trajectory
    position, velocity = trajectory.sample(now)
    left = trajectory.times - offset
    keep = left >= MIN_SPACING_S - _NS
    times = [np.zeros(1)]
    positions, velocities = [position[None]], [velocity[None]]
    if not keep.any():
        # At most 4 ms of the stop are left, at crawling speed.
        times.append(np.array([MIN_SPACING_S, REST_S]))
        positions.append(trajectory.positions[[-1, -1]])
        velocities.append(np.zeros((2, len(position))))
    else:
        first = int(np.argmax(keep))
        close = 0.0 < left[first - 1] < MIN_SPACING_S - _NS if first > 0 else False
        if close and left[first] >= 2.0 * MIN_SPACING_S:
            p, v = trajectory.sample(now + MIN_SPACING_S)
            times.append(np.full(1, MIN_SPACING_S))
            positions.append(p[None])
            velocities.append(v[None])
        times.append(left[first:])
        positions.append(trajectory.positions[first:])
        velocities.append(trajectory.velocities[first:])
        if left[-1] < REST_S:
            times.append(np.full(1, max(REST_S, left[-1] + MIN_SPACING_S)))
            positions.append(trajectory.positions[-1:])
            velocities.append(np.zeros((1, len(position))))
    times = np.concatenate(times)
    brake_from = None
    if trajectory.brake_from is not None:
        # The brake begins at the first point not before where it began.
        begins = trajectory.times[trajectory.brake_from] - offset
        brake_from = min(int(np.searchsorted(times, begins - _NS)), len(times) - 1)
    return replace(
        trajectory,
        start=now,
        times=times,
        positions=np.concatenate(positions),
        velocities=np.concatenate(velocities),
        brake_from=brake_from,
    )


def joined(trajectory: Trajectory, position: np.ndarray, velocity: np.ndarray, within_s: float) -> Trajectory:
    """Return ``trajectory`` bent so that it begins at ``position``, ``velocity`` (n,) and is itself from then on.

    The difference at point 0 fades out as a cubic until the last point within ``within_s`` seconds; a cubic added to
    cubics leaves cubics, so nothing happens between the points that the points do not say. Where the difference is
    nothing but rounding, the trajectory is returned as it is.
    """
    dp, dv = position - trajectory.positions[0], velocity - trajectory.velocities[0]
    if max(np.abs(dp).max(), np.abs(dv).max()) < 1e-12:
        return trajectory
    times = trajectory.times
    last = int(np.searchsorted(times, within_s + _NS, side="right")) - 1
    last = min(max(last, 1), len(times) - 1)
    fade = times[last]
    s = (times[: last + 1] / fade)[:, None]
    positions, velocities = trajectory.positions.copy(), trajectory.velocities.copy()
    positions[: last + 1] += dp * (1.0 - 3.0 * s**2 + 2.0 * s**3) + dv * fade * (s - 2.0 * s**2 + s**3)
    velocities[: last + 1] += dp * (6.0 * s**2 - 6.0 * s) / fade + dv * (1.0 - 4.0 * s + 3.0 * s**2)
    positions[0], velocities[0] = position, velocity
    positions[last], velocities[last] = trajectory.positions[last], trajectory.velocities[last]
    return replace(trajectory, positions=positions, velocities=velocities)


def windowed(trajectory: Trajectory, now: float, window_s: float, limits: Limits, step_s: float) -> Trajectory:
    """Return the next ``window_s`` seconds of a long motion and then a stop, so that nobody's death makes it go on.

    A motion that says where its brake begins (``brake_from``), or that ends inside the window, is returned whole.
    """
    left = rebased(trajectory, now)
    if left.brake_from is not None or left.times[-1] <= window_s + REST_S:
        return left
    cut = int(np.searchsorted(left.times, window_s - MIN_SPACING_S))
    if left.times[cut] < window_s:  # a point that is too close to the cut to be left out: cut there
        window_s = float(left.times[cut])
    position, velocity = left.sample(now + window_s)
    stop = brake(position, velocity, left.acceleration(now + window_s), limits, step_s)
    times = np.concatenate((left.times[:cut], window_s + stop.times))
    positions = np.concatenate((left.positions[:cut], stop.positions))
    velocities = np.concatenate((left.velocities[:cut], stop.velocities))
    velocities[-1] = 0.0
    return rebased(replace(left, times=times, positions=positions, velocities=velocities, brake_from=cut), now)
