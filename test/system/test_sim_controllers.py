"""Controllers without physics: several at once, other joints, the rules of each distribution over DDS."""

import json

import numpy as np
import pytest
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

NODE = "vla_runtime.sim.controllers_node"


def message(ros, names, positions, seconds, end_velocity=0.0):
    """One stretch that begins now, from where the controller is, to the positions."""
    sent = JointTrajectory(joint_names=names)
    sent.header.stamp = ros.node.get_clock().now().to_msg()
    point = JointTrajectoryPoint(positions=positions, velocities=[end_velocity] * len(names))
    point.time_from_start.sec, point.time_from_start.nanosec = divmod(round(seconds * 1e9), 10**9)
    sent.points = [point]
    return sent


def joints(states):
    return dict(zip(states[-1][1].name, states[-1][1].position))


def test_two_controllers_with_fourteen_joints(spawn, ros):
    robot = spawn(NODE, "--ros-args", "-p", "robot:=viperx_bimanual", "-p", "pose:=home")
    states = ros.listen(JointState, "joint_states")
    reports = ros.listen(String, "sim/controller")
    sides = {
        side: ros.publisher(JointTrajectory, f"{side}_arm_controller/joint_trajectory") for side in ("left", "right")
    }
    start = ros.wait(lambda: states and joints(states), 20.0, "joint states")
    assert len(start) == 14
    assert start["left_elbow"] == pytest.approx(1.16)
    for side, publisher in sides.items():
        names = [name for name in start if name.startswith(side)]
        goal = [start[name] + (0.2 if name.endswith("waist") else 0.0) for name in names]
        publisher.publish(message(ros, names, goal, 0.5))
    ros.wait(lambda: np.abs([joints(states)[f"{side}_waist"] - 0.2 for side in sides]).max() < 5e-3, 10.0, "both arms")
    # The other arm's joints are refused, whole.
    names = [name for name in start if name.startswith("right")]
    sides["left"].publish(message(ros, names, [0.0] * 7, 0.5))

    def refused():
        report = json.loads(reports[-1][1].data)["left_arm_controller"] if reports else {}
        return report.get("rejected") and report

    left = ros.wait(refused, 10.0, "the refusal")
    assert left["rejected"] == {"unknown_joint": 1}
    assert json.loads(reports[-1][1].data)["right_arm_controller"]["rejected_messages"] == 0
    assert "Incoming joint right_waist doesn't match" in robot.log()
    assert robot.stop() == 0


@pytest.mark.parametrize("distro", ["humble", "rolling"])
def test_a_distribution_decides_what_may_end_in_motion(spawn, ros, distro):
    spawn(NODE, "--ros-args", "-p", "robot:=ur5e", "-p", f"distro:={distro}")
    reports = ros.listen(String, "sim/controller")
    states = ros.listen(JointState, "joint_states")
    publisher = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=20.0)
    names = list(ros.wait(lambda: states and joints(states), 20.0, "joint states"))
    publisher.publish(message(ros, names, [0.1] * len(names), 0.2, end_velocity=0.01))
    report = ros.wait(lambda: reports and (r := json.loads(reports[-1][1].data)[""])["received"] and r, 5.0, "report")
    assert (report["rejected"] == {}) == (distro == "humble")


def test_a_bad_pose_is_named(spawn, ros):
    robot = spawn(NODE, "--ros-args", "-p", "robot:=viperx_bimanual", "-p", "pose:=yoga")
    assert robot.wait(30.0) == 1
    assert "pose is 'yoga'; viperx_bimanual.yaml has home, sleep" in robot.log()
