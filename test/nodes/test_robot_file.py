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
        (GOOD + "named_poses: {up: {a: 1.5}}\n", r"named pose 'up' has a at 1.5 rad, outside its limits of -1 to 1"),
        (GOOD + "named_pose: {up: {a: 0.5}}\n", "unknown key 'named_pose'; did you mean 'named_poses'?"),
        (GOOD + "colour: red\n", "unknown key 'colour'; there are joints, named_poses, controllers, sources"),
        (GOOD.replace("lower: -1", "lower: -180"), r"a: lower -180 looks like degrees; write radians \(-3.14159\)"),
        (GOOD.replace("upper: 1", "upper: 90"), r"a: upper 90 looks like degrees; write radians \(1.5708\)"),
        (
            GOOD.replace("lower: -1, upper: 1", "continuous: true") + "named_poses: {up: {a: 90}}\n",
            "a at 90, which looks like",
        ),
        (GOOD + GOOD.splitlines()[1] + "\n", "'a' is given twice, in lines 2 and 3"),
        (GOOD.replace("jerk: 3", "jerk: 3, lower: -2"), "'lower' is given twice, in lines 2 and 2"),
        ("joints: [", "is not YAML"),
        ("", "expected a mapping"),
    ],
)
def test_a_file_that_cannot_be_right(tmp_path, content, text):
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(RobotFileError, match=text) as refusal:
        load_robot(str(tmp_path / "mine.yaml"))
    assert str(refusal.value).count("mine.yaml") == 1


@pytest.mark.parametrize(("name", "text"), [("", "robot is empty"), ("so102", "so101, so101_sim")])
def test_a_robot_that_is_not_there(name, text):
    with pytest.raises(RobotFileError, match=text):
        load_robot(name)


def test_two_arms_name_their_controllers():
    robot = load_robot("viperx_bimanual")
    assert {name: len(joints) for name, joints in robot.controllers.items()} == {
        "left_arm_controller": 7,
        "right_arm_controller": 7,
    }
    assert load_robot("so101").controllers == {}


@pytest.mark.parametrize(
    ("controllers", "text"),
    [
        ("{one: [a, b]}", "unknown joint 'b'"),
        ("{one: [a], two: [a]}", "joint 'a' has two controllers"),
        ("[a]", "must map each controller"),
        ("{one: a}", "must map each controller"),
    ],
)
def test_controllers_that_cannot_be_right(tmp_path, controllers, text):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD + f"controllers: {controllers}\n")
    with pytest.raises(RobotFileError, match=text):
        load_robot(str(path))


def test_a_joint_without_a_controller_is_named(tmp_path):
    path = tmp_path / "mine.yaml"
    more = GOOD + "  b: {lower: -1, upper: 1, velocity: 1, acceleration: 2, jerk: 3}\ncontrollers: {one: [a]}\n"
    path.write_text(more)
    with pytest.raises(RobotFileError, match="no controller drives b"):
        load_robot(str(path))
