"""Jerk-limited motion as knots: what the fallback planners are made of.

Ruckig gives piecewise constant jerk, so position is an exact cubic between the instants at which some joint's jerk
switches. Those instants are the knots here: a cubic Hermite trajectory through them *is* the profile, with a dozen
points instead of a hundred.
"""

from dataclasses import dataclass

import numpy as np
import ruckig

from vla_runtime.control.trajectory import MIN_SPACING_S


class MotionError(Exception):
    """No jerk-limited motion exists from this state; the text says what Ruckig objected to."""


@dataclass(frozen=True)
class MotionState:
    """Where the command is: position, velocity and acceleration, each (n,), rad, rad/s, rad/s^2."""

    position: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray


@dataclass(frozen=True)
class Profile:
    """A motion that ends at rest.

    Attributes:
        times: (m,) seconds, from 0, strictly increasing by at least MIN_SPACING_S.
        positions: (m, n) rad.
        velocities: (m, n) rad/s; the last row exactly 0.
        low: (n,) smallest position on the way, rad.
        high: (n,) largest position on the way, rad.
    """

    times: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    low: np.ndarray
    high: np.ndarray


def stop(state: MotionState, acceleration: np.ndarray, jerk: np.ndarray) -> Profile:
    """Come to rest with at most ``acceleration`` and ``jerk`` (n,), all joints together, which keeps the path.

    Raises:
        MotionError: if there is no such motion (a state that is not finite, for one).
    """
    parameters = _input(state, acceleration, jerk)
    parameters.control_interface = ruckig.ControlInterface.Velocity
    parameters.max_velocity = np.full(len(jerk), 1e3)  # not used in this mode, but checked
    return _profile(parameters)


def move(
    state: MotionState, target: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray, jerk: np.ndarray
) -> Profile:
    """Go to ``target`` (n,) rad and rest there, all joints arriving together, inside the three limits (n,) each.

    Raises:
        MotionError: if there is no such motion.
    """
    parameters = _input(state, acceleration, jerk)
    parameters.control_interface = ruckig.ControlInterface.Position
    parameters.max_velocity = velocity
    parameters.target_position = target
    return _profile(parameters)


def _input(state: MotionState, acceleration: np.ndarray, jerk: np.ndarray) -> ruckig.InputParameter:
    n = len(jerk)
    parameters = ruckig.InputParameter(n)
    parameters.synchronization = ruckig.Synchronization.Time
    parameters.current_position = state.position
    parameters.current_velocity = state.velocity
    parameters.current_acceleration = state.acceleration
    parameters.target_velocity = np.zeros(n)
    parameters.target_acceleration = np.zeros(n)
    parameters.max_acceleration = acceleration
    parameters.max_jerk = jerk
    return parameters


def _profile(parameters: ruckig.InputParameter) -> Profile:
    n = parameters.degrees_of_freedom
    trajectory = ruckig.Trajectory(n)
    try:
        result = ruckig.Ruckig(n).calculate(parameters, trajectory)
    except ruckig.RuckigError as error:
        raise MotionError(" ".join(str(error).split())) from error
    if int(result) < 0:
        raise MotionError(f"Ruckig answers {result}")
    times = _knots(trajectory)
    rows = [trajectory.at_time(t) for t in times]
    positions = np.array([row[0] for row in rows]).reshape(len(times), n)
    velocities = np.array([row[1] for row in rows]).reshape(len(times), n)
    velocities[-1] = 0.0
    low = np.array([bound.min for bound in trajectory.position_extrema])
    high = np.array([bound.max for bound in trajectory.position_extrema])
    return Profile(times, positions, velocities, low, high)


def _knots(trajectory: ruckig.Trajectory) -> np.ndarray:
    """Return the instants at which some joint's jerk switches, thinned to MIN_SPACING_S; at least two."""
    switches = [0.0]
    for profile in trajectory.profiles[0]:
        switches.extend(np.cumsum([*profile.brake.t, *profile.t, *profile.accel.t]))
    end = max(trajectory.duration, MIN_SPACING_S)
    return thinned(np.append(switches, end), end)


def thinned(times: np.ndarray, end: float) -> np.ndarray:
    """Return sorted ``times`` in [0, end] with both ends kept and no two closer than MIN_SPACING_S."""
    kept = [0.0]
    for t in np.unique(times):
        if t - kept[-1] >= MIN_SPACING_S and end - t >= MIN_SPACING_S:
            kept.append(float(t))
    return np.array([*kept, end])
