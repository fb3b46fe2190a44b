"""The closed form against itself, and against MuJoCo."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.sim.kinematics import HOME, UnreachableError, forward, inverse
from vla_runtime.sim.scene import build_model

PLACE = st.tuples(
    st.floats(0.17, 0.26), st.floats(-0.14, 0.14), st.floats(0.015, 0.10), st.floats(-1.0, 1.0), st.floats(1.2, 1.57)
)


@given(PLACE)
def test_forward_undoes_inverse(place):
    x, y, z, yaw, pitch = place
    try:
        q = inverse(x, y, z, yaw, pitch)
    except UnreachableError:
        return
    tool, found_pitch, found_yaw = forward(q)
    assert tool == pytest.approx([x, y, z], abs=1e-9)
    assert found_pitch == pytest.approx(pitch)
    assert np.cos(found_yaw - yaw) == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(PLACE)
def test_mujoco_puts_the_tool_there_too(place):
    x, y, z, yaw, pitch = place
    try:
        q = inverse(x, y, z, yaw, pitch)
    except UnreachableError:
        return
    data = mujoco.MjData(MODEL)
    data.qpos[:5] = q
    mujoco.mj_kinematics(MODEL, data)
    assert data.site("tcp").xpos == pytest.approx([x, y, z], abs=1e-6)
    along = data.site("tcp").xmat.reshape(3, 3)[:, 0]  # the hand's direction
    assert np.arcsin(-along[2]) == pytest.approx(min(pitch, np.pi - pitch), abs=1e-5)


def test_out_of_reach_is_refused_with_the_place():
    with pytest.raises(UnreachableError, match=r"0\.600"):
        inverse(0.6, 0.0, 0.1, 0.0)


def test_home_is_inside_the_joints_ranges():
    lower, upper = MODEL.jnt_range[:6].T
    assert np.minimum(HOME - lower, upper - HOME).min() > 0.1


MODEL = build_model()
