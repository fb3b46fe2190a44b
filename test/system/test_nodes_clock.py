"""Under use_sim_time: a clock that jumps does not stop the stream; one that does not run with the world is reported."""

import re
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import TrajectoryWriter, set_stamp, stamp_ns
from vla_runtime.nodes.robot_file import load_robot

JOINTS = load_robot("so101_sim").limits.joint_names
POSE = [0.0, -0.5, 0.3, 1.2, 0.0, 0.5]
TOLERANT = {"stream_deadline_s": 0.5, "joint_state_deadline_s": 0.5, "answer_deadline_s": 5.0,
            "policy_deadline_s": 5.0, "max_observation_age_s": 60.0, "window_s": 0.6}  # fmt: skip


class World:
    """Everybody whom the watchdog listens to, on a simulated clock that a test can move."""

    def __init__(self, ros):
        self.offset_ns = 100 * 10**9 - time.monotonic_ns()
        node = ros.node
        self.clock = node.create_publisher(Clock, "/clock", 10)
        self.joints = node.create_publisher(JointState, "joint_states", 10)
        self.heartbeat = node.create_publisher(Header, "heartbeat", 10)
        self.planned = node.create_publisher(JointTrajectory, "planned_trajectory", 1)
        self.chunks = node.create_publisher(JointTrajectory, "action_chunk", 10)
        self.writer = TrajectoryWriter(JOINTS)
        self.answered = False
        node.create_timer(0.01, self.tell_time)
        node.create_timer(0.02, self.go_on)

    def now_ns(self):
        return time.monotonic_ns() + self.offset_ns

    def tell_time(self):
        message = Clock()
        set_stamp(message.clock, self.now_ns())
        self.clock.publish(message)

    def go_on(self):
        now = self.now_ns()
        joints = JointState(name=list(JOINTS), position=POSE, velocity=[0.0] * len(JOINTS))
        set_stamp(joints.header.stamp, now)
        self.joints.publish(joints)
        self.heartbeat.publish(Header(frame_id="ready"))
        rest = [[0.0] * len(JOINTS)] * 2
        times, positions = [0.0, 0.3], [POSE, POSE]
        if not self.answered:
            self.chunks.publish(self.writer.write(now, "w:1", *as_arrays(times, positions), None))
        self.planned.publish(self.writer.write(now, "w:1", *as_arrays(times, positions, rest)))


def as_arrays(*values):
    return [np.array(value, float) for value in values]


def jumps(process):
    """The reported jumps, in whole seconds."""
    return [round(float(size)) for size in re.findall(r"the ROS clock jumped by ([-+.\d]+) s", process.log())]


def test_the_stream_does_not_care(spawn, ros):
    world = World(ros)
    parameters = {"robot": "so101_sim", "use_sim_time": "true", **TOLERANT}
    pairs = [part for name, value in parameters.items() for part in ("-p", f"{name}:={value}")]
    watchdog = spawn("vla_runtime.nodes.watchdog_node", "--ros-args", *pairs)
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    commands = ros.listen(JointTrajectory, "joint_trajectory")
    ros.wait(lambda: states and states[-1][1].message == "NOMINAL", 30.0, "NOMINAL")
    world.answered = True

    for size_s in (-5, 5):
        seen = len(states)
        before = len(commands)
        time.sleep(0.5)
        world.offset_ns += size_s * 10**9
        ros.wait(lambda size_s=size_s: size_s in jumps(watchdog), 10.0, "the report")
        time.sleep(1.0)
        assert {message.message for _, message in states[seen:]} <= {"NOMINAL"}
        stream = commands[before:]
        assert len(stream) > 30
        assert all(list(message.points[0].positions) == pytest.approx(POSE) for _, message in stream)
        # The stamps are the controller's clock: they jump with it.
        stamps = [stamp_ns(message.header.stamp) for _, message in stream]
        steps = [b - a for a, b in zip(stamps, stamps[1:])]
        jumped = [step for step in steps if abs(step) > 2 * 10**9]
        assert [round(step / 10**9) for step in jumped] == [size_s]
    assert jumps(watchdog) == [-5, 5]


def test_a_clock_that_does_not_run_with_the_world_is_reported(spawn, ros):
    clock = ros.node.create_publisher(Clock, "/clock", 10)
    begin = time.monotonic_ns()

    def tell_time():
        message = Clock()
        set_stamp(message.clock, 10**11 + (time.monotonic_ns() - begin) // 2)
        clock.publish(message)

    ros.node.create_timer(0.01, tell_time)
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    watchdog = spawn("vla_runtime.nodes.watchdog_node", "--ros-args", "-p", "robot:=so101_sim", "-p",
                     "use_sim_time:=true")  # fmt: skip

    def said():
        own = [one for _, array in diagnostics for one in array.status if one.name == "watchdog: lifecycle"]
        return [one for one in own if one.message.startswith("/clock runs at 0.50 of real time")]

    ros.wait(said, 60.0, "the report")
    assert watchdog.log().count("/clock runs at 0.50 of real time") == 1
