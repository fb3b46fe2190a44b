"""Fourteen joints, two controllers: each arm gets its part of one command, and both come to rest."""

import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from sensor_msgs.msg import JointState
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.nodes.robot_file import load_robot

ROBOT = load_robot("viperx_bimanual")
NAMES = ROBOT.limits.joint_names
REST = np.array([ROBOT.poses["home"].get(name, 0.04) for name in NAMES])


@pytest.mark.timeout(120)
def test_each_arm_gets_its_part_of_one_command(spawn, ros):
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    whole = ros.listen(JointTrajectory, "joint_trajectory")
    parts = {name: ros.listen(JointTrajectory, f"{name}/joint_trajectory") for name in ROBOT.controllers}
    joints = ros.publisher(JointState, "joint_states", wait_s=0)
    heartbeat = ros.publisher(Header, "heartbeat", wait_s=0)
    chunks = ros.publisher(JointTrajectory, "action_chunk", wait_s=0)
    requests = ros.listen(JointTrajectory, "plan_request")

    def feed() -> None:
        now = ros.node.get_clock().now().to_msg()
        state = JointState(name=list(NAMES), position=REST.tolist(), velocity=[0.0] * 14)
        state.header.stamp = now
        joints.publish(state)
        heartbeat.publish(Header(frame_id="ready"))
        answered = len(feed.answered)
        for _, request in requests[answered:]:
            feed.answered.append(request.header.frame_id)
            answer = JointTrajectory(joint_names=list(NAMES))
            answer.header.frame_id, answer.header.stamp = request.header.frame_id, now
            for i in range(50):
                point = JointTrajectoryPoint(positions=(REST + 0.1 * i / 50 * np.array(NAMES_THAT_MOVE)).tolist())
                point.time_from_start.nanosec = i * 20_000_000
                answer.points.append(point)
            chunks.publish(answer)

    feed.answered = []
    timer = ros.node.create_timer(0.01, feed)
    common = ("--ros-args", "-p", "robot:=viperx_bimanual", "-p", "realtime_priority:=0")
    watchdog = spawn("vla_runtime.nodes.watchdog_node", *common)
    spawn("vla_runtime.nodes.executor_node", *common)
    ros.wait(lambda: any(message.message == "NOMINAL" for _, message in states), 60, "the policy in command")
    ros.wait(lambda: all(len(part) > 25 for part in parts.values()), 20, "half a second of commands for both arms")

    by_stamp = {(m.header.stamp.sec, m.header.stamp.nanosec): m for _, m in whole}
    compared = 0
    for name, part in parts.items():
        own = list(ROBOT.controllers[name])
        for _, message in list(part):
            assert message.joint_names == own
            other = by_stamp.get((message.header.stamp.sec, message.header.stamp.nanosec))
            if other is None:
                continue
            columns = [other.joint_names.index(joint) for joint in own]
            for mine, theirs in zip(message.points, other.points):
                assert mine.time_from_start == theirs.time_from_start
                assert list(mine.positions) == [theirs.positions[i] for i in columns]
            compared += 1
    assert compared > 20

    watchdog.stop(10.0)
    time.sleep(0.5)
    ros.node.destroy_timer(timer)
    for part in parts.values():
        assert set(part[-1][1].points[-1].velocities) == {0.0}


NAMES_THAT_MOVE = [0.0 if discrete else 1.0 for discrete in ROBOT.limits.discrete]
