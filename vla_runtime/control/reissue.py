"""Saying the same motion again from a later instant, in the form of a message.

The part of a cubic that is left is a cubic through its end points, so a trajectory re-based at ``now`` is the same
curve: re-sent 50 times a second, it moves nothing. Only a point that would be too close to ``now`` has to go, and then
the acceleration around it is averaged: the velocity stays what it was from there on, the position is off by a few
hundredths of a milliradian, and no limit that was kept is broken.
"""

from dataclasses import replace

import numpy as np

from vla_runtime.control.brake import brake
from vla_runtime.control.limits import Limits
from vla_runtime.control.tracking import Tracker
from vla_runtime.control.trajectory import MIN_SPACING_S, REST_S, Trajectory

_NS = 1e-9
_ROUNDING = 2e-8  # rad and rad/s: what a nanosecond of a stamp makes at 20 rad/s and 20 rad/s^2


def rebased(trajectory: Trajectory, now: float) -> Trajectory:
    """Return what is left of ``trajectory`` at ``now``: point 0 is its sample there, then its remaining points.

    A point less than 4 ms ahead is left out: until 4 ms ahead (or the next point) acceleration is constant, with the
    velocity there as it was, and the rest is moved by what that makes in position. A trajectory that has ended (or
    nearly) is followed by its resting position for at least 0.1 s.
    """
    offset = now - trajectory.start
    if offset == 0.0 and trajectory.times[-1] >= REST_S:
        return trajectory
    position, velocity = trajectory.sample(now)
    left = trajectory.times - offset
    first = int(np.searchsorted(left, MIN_SPACING_S - _NS))
    times = [np.zeros(1), left[first:]]
    positions, velocities = (
        [position[None], trajectory.positions[first:]],
        [velocity[None], trajectory.velocities[first:]],
    )
    if first == len(left):  # at most 4 ms of the stop are left, at crawling speed
        position = trajectory.positions[-1]
        times[1], positions[1] = np.array([MIN_SPACING_S]), position[None]
        velocities[1] = np.zeros((1, len(position)))
    elif first > 0 and left[first - 1] > _NS:
        until = MIN_SPACING_S if left[first] >= 2.0 * MIN_SPACING_S else float(left[first])
        there, speed = trajectory.sample(now + until)
        averaged = position + 0.5 * until * (velocity + speed)
        positions[1] = positions[1] + (averaged - there)
        if until < left[first]:
            times.insert(1, np.full(1, until))
            positions.insert(1, averaged[None])
            velocities.insert(1, speed[None])
    end = float(times[-1][-1])
    if end < REST_S:
        times.append(np.full(1, max(REST_S, end + MIN_SPACING_S)))
        positions.append(positions[-1][-1:])
        velocities.append(np.zeros((1, len(position))))
    all_times = np.concatenate(times)
    brake_from = None
    if trajectory.brake_from is not None:  # the first point not before where it began
        begins = trajectory.times[trajectory.brake_from] - offset
        brake_from = min(int(np.searchsorted(all_times, begins - _NS)), len(all_times) - 1)
    return Trajectory(
        now,
        trajectory.joint_names,
        all_times,
        np.concatenate(positions),
        np.concatenate(velocities),
        trajectory.plan_id,
        brake_from,
    )


def joined(trajectory: Trajectory, position: np.ndarray, velocity: np.ndarray, within_s: float) -> Trajectory:
    """Return ``trajectory`` bent so that it begins at ``position``, ``velocity`` (n,) and is itself from then on.

    The difference at point 0 fades out as a cubic until the last point within ``within_s`` seconds; a cubic added to
    cubics leaves cubics, so nothing happens between the points that the points do not say. Where the difference is
    nothing but rounding, the trajectory is returned as it is.
    """
    dp, dv = position - trajectory.positions[0], velocity - trajectory.velocities[0]
    if max(np.abs(dp).max(), np.abs(dv).max()) < _ROUNDING:
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
    return _with(trajectory, positions, velocities)


def _with(trajectory: Trajectory, positions: np.ndarray, velocities: np.ndarray) -> Trajectory:
    return Trajectory(
        trajectory.start,
        trajectory.joint_names,
        trajectory.times,
        positions,
        velocities,
        trajectory.plan_id,
        trajectory.brake_from,
    )


def mixed(trajectory: Trajectory, other: Trajectory, joints: np.ndarray) -> Trajectory:
    """Return ``trajectory`` with the columns of ``joints`` (n,) bool from ``other``, which has the same times."""
    positions = np.where(joints, other.positions, trajectory.positions)
    return _with(trajectory, positions, np.where(joints, other.velocities, trajectory.velocities))


def led(
    trajectory: Trajectory,
    position: np.ndarray,
    velocity: np.ndarray,
    window_s: float,
    limits: Limits,
    tracker: Tracker,
    step_s: float,
) -> Trajectory:
    """Return the way from ``position``, ``velocity`` (n,) onto ``trajectory``, inside the limits, and then a stop.

    For what :func:`joined` cannot bend: where the trajectory itself takes all the acceleration there is, a joint
    follows it at the limits and catches up where it may; one that is on it already stays on it. Of the trajectory,
    ``window_s`` seconds are used.
    """
    rows = max(int(np.searchsorted(trajectory.times, window_s + _NS, side="right")), 2)
    times = trajectory.times[:rows]
    ahead, speeds = trajectory.positions[:rows], trajectory.velocities[:rows]
    survey = tracker.survey(times, ahead, speeds)
    way = tracker.follow(position, velocity, survey, 0, rows - 1, limits.acceleration)
    stop = brake(way.positions[-1], way.velocities[-1], way.acceleration, limits, step_s)
    velocities = np.concatenate((velocity[None], way.velocities, stop.velocities[1:]))
    velocities[-1] = 0.0
    return replace(
        trajectory,
        times=np.concatenate((times, times[-1] + stop.times[1:])),
        positions=np.concatenate((position[None], way.positions, stop.positions[1:])),
        velocities=velocities,
        brake_from=rows - 1,
    )


def windowed(trajectory: Trajectory, window_s: float, limits: Limits, step_s: float) -> Trajectory:
    """Return the first ``window_s`` seconds of a long motion and then a stop: nobody's death makes it go on for long.

    A motion that says where its brake begins (``brake_from``), or that ends soon after the window, is returned whole.
    """
    times = trajectory.times
    if trajectory.brake_from is not None or times[-1] <= window_s + REST_S:
        return trajectory
    cut = int(np.searchsorted(times, window_s - MIN_SPACING_S))
    if times[cut] < window_s:  # a point that is too close to the cut to be left out: cut there
        window_s = float(times[cut])
    at = trajectory.start + window_s
    position, velocity = trajectory.sample(at)
    stop = brake(position, velocity, trajectory.acceleration(at), limits, step_s)
    velocities = np.concatenate((trajectory.velocities[:cut], stop.velocities))
    velocities[-1] = 0.0
    return replace(
        trajectory,
        times=np.concatenate((times[:cut], window_s + stop.times)),
        positions=np.concatenate((trajectory.positions[:cut], stop.positions)),
        velocities=velocities,
        brake_from=cut,
    )
