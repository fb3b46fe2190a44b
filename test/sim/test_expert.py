"""The scripted expert lifts the right cube, and stays inside the robot's limits."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.sim.arm import Arm
from vla_runtime.sim.expert import TICK_S, Expert, Motion
from vla_runtime.sim.kinematics import HOME, UnreachableError, inverse
from vla_runtime.sim.scene import JOINTS

ROBOT = yaml.safe_load((Path(__file__).parents[2] / "config/robots/so101_sim.yaml").read_text(encoding="utf-8"))


def limits(name):
    return np.array([ROBOT["joints"][joint][name] for joint in JOINTS])


@pytest.fixture(scope="module")
def arm():
    return Arm(0)


@pytest.mark.parametrize("seed", range(8))
def test_it_lifts_the_named_cube(arm, seed):
    scene = arm.reset(seed)
    plan = Expert().plan(Motion(arm.targets), arm.q, arm.cube_pose(scene.colour), held=False)
    for command in plan.q:
        arm.drive(command)
    assert arm.outcome().success
    assert arm.held() == {scene.colour}


def test_only_the_instruction_decides_which_cube(arm):
    for colour in ("red", "green", "blue"):
        scene = arm.reset(4, f"pick up the {colour} cube")
        for command in Expert().plan(Motion(arm.targets), arm.q, arm.cube_pose(scene.colour), held=False).q:
            arm.drive(command)
        assert arm.outcome().success and arm.scene.colour == colour


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.18, 0.27), st.floats(-0.7, 0.7), st.floats(0.02, 0.1), st.floats(-0.5, 0.5), st.floats(0.0, 1.0),
    st.floats(-0.4, 0.4), st.floats(-0.12, 0.12),
)  # fmt: skip
def test_commands_from_anywhere_keep_half_the_limits(radius, bearing, z, yaw, gripper, cube_yaw, cube_y):
    at = 0.0388 + radius * np.cos(bearing), radius * np.sin(bearing)
    try:
        start = np.append(inverse(*at, z, bearing + yaw, 1.4), gripper)
        plan = Expert().plan(Motion(start), start, np.array([0.24, cube_y, 0.014, cube_yaw]), held=False)
    except UnreachableError:
        return
    rows = np.concatenate([start[None], plan.q])
    speed = np.diff(rows, axis=0) / TICK_S
    assert (np.abs(speed) <= 0.6 * limits("velocity")).all()
    assert (np.abs(np.diff(speed, axis=0)) / TICK_S <= 0.6 * limits("acceleration")).all()
    inside = (rows[:, :5] >= limits("lower")[:5]) & (rows[:, :5] <= limits("upper")[:5])
    assert inside.all() or not ((start[:5] >= limits("lower")[:5]) & (start[:5] <= limits("upper")[:5])).all()
    assert (plan.v[-1] == pytest.approx(np.zeros(6), abs=1e-6)) and (plan.a[-1] == pytest.approx(np.zeros(6), abs=1e-6))


def test_it_lets_go_of_another_cube_before_it_leaves():
    start = np.append(inverse(0.22, 0.0, 0.018, 0.0), 0.12)
    measured = start.copy()
    measured[5] = 0.41  # jaws stopped by a cube
    plan = Expert().plan(Motion(start), measured, np.array([0.2, 0.1, 0.014, 0.4]), held=False, other_held=True)
    opened = int(np.argmax(plan.q[:, 5] > 0.9))
    assert np.abs(plan.q[:opened, :5] - start[:5]).max() < 1e-6


def test_the_named_home_is_the_arms_home():
    home = ROBOT["named_poses"]["home"]
    assert [home[joint] for joint in JOINTS] == pytest.approx(list(HOME), abs=1e-4)
