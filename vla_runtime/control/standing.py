"""Where plans begin when nobody drives: at the last command, unless the arm has been moved away from it since."""

import numpy as np

from vla_runtime.control.finite import all_finite
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import REST_S, JointSample, Trajectory, at_rest

_SHARE = 0.5
"""Of what the watchdog allows between the first command and the measured state (``Gate.near``)."""


def where_it_stands(
    now: float, command: Trajectory | None, joints: JointSample | None, limits: Limits, period_s: float
) -> Trajectory | None:
    """Return ``command``, or a rest at the measured state where the command has ended and the arm is elsewhere.

    For an arm that nobody drives (the watchdog is off, or has just begun): it may have been moved by hand, or have
    sagged. Discrete joints stay where they were commanded: a gripper that holds something is measured wider.
    """
    if command is None or joints is None or now < command.end or not all_finite(joints.position):
        return command
    ended = command.positions[-1]
    apart = np.where(limits.discrete, 0.0, np.abs(ended - joints.position))
    if not (apart > _SHARE * limits.velocity * period_s).any():
        return command
    position = np.where(limits.discrete, ended, joints.position)
    return at_rest(now - REST_S, limits.joint_names, position)
