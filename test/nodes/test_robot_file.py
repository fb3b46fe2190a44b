"""Robots by name and by path."""

import pytest

from vla_runtime.nodes.robot_file import RobotFileError, load_robot

GOOD = "joints:\n  a: {lower: -1, upper: 1, velocity: 1, acceleration: 2, jerk: 3, discrete: false}\n"


def test_by_name():
    robot = load_robot("so101_sim")
    assert robot.limits.joint_names[0] == "shoulder_pan"
    assert set(robot.poses["home"]) <= set(robot.limits.joint_names)


@pytest.mark.parametrize("name", ["so101", "ur5e", "franka_fr3", "viperx_bimanual", "kinova_gen3"])
def test_every_robot_that_is_shipped_loads(name):
    assert load_robot(name).limits.joint_names


def test_by_path(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD + "named_poses: {up: {a: 0.5}}\n")
    robot = load_robot(str(tmp_path / "mine.yaml"))
    assert robot.poses == {"up": {"a": 0.5}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (GOOD.replace("velocity: 1", "velocity: -1"), "a: velocity must be positive"),
        (GOOD + "named_poses: {up: {b: 0.5}}\n", "named pose 'up' names unknown joint b; there are a"),
        (GOOD + "named_poses: {up: 0.5}\n", "named pose 'up' must map joints to radians"),
        (GOOD + "named_poses: [1]\n", "must map joints"),
        ("joints: [", "is not YAML"),
        ("", "expected a mapping"),
    ],
)
def test_a_file_that_cannot_be_right(tmp_path, content, text):
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(RobotFileError, match=text):
        load_robot(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(("name", "text"), [("", "robot is empty"), ("so102", "so101, so101_sim")])
def test_a_robot_that_is_not_there(name, text):
    with pytest.raises(RobotFileError, match=text):
        load_robot(name)
