"""Where plans begin when nobody drives."""

import numpy as np

from vla_runtime.control.standing import where_it_stands
from vla_runtime.control.trajectory import JointSample, at_rest


def test_a_measured_state_that_is_not_finite_is_no_place_to_begin(make_limits):
    """It would stay: what is compared with it is never far from it."""
    limits = make_limits(2)
    command = at_rest(1.0, limits.joint_names, np.zeros(2))
    for measured in ([np.nan, 0.5], [np.inf, 0.5]):
        sample = JointSample(2.0, np.array(measured), np.zeros(2))
        assert where_it_stands(2.0, command, sample, limits, 0.02) is command
    moved = JointSample(2.0, np.array([0.0, 0.5]), np.zeros(2))
    assert where_it_stands(2.0, command, moved, limits, 0.02).positions[-1].tolist() == [0.0, 0.5]
