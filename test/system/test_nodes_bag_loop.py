"""/clock jumps and loops, as a bag player's does, under all three nodes at once: the stream goes on, each says so."""

import re
import time

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rosgraph_msgs.msg import Clock
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import set_stamp
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

LIMITS = load_robot("so101_sim").limits
START_NS = 100 * 10**9
LOOP_S = 1.5
NODES = ("watchdog", "executor", "policy")
# A busy machine is not what is tried here: only the silences that a clock could feign are short.
TOLERANT = {"answer_deadline_s": 5.0, "policy_deadline_s": 8.0, "max_observation_age_s": 4.0, "stream_deadline_s": 0.3,
            "joint_state_deadline_s": 0.5, "window_s": 0.5}  # fmt: skip


class Player:
    """Tells the time as a bag player does, and can jump, or begin the bag again."""

    def __init__(self, ros):
        self._offset_ns = START_NS - time.monotonic_ns()
        self._clock = ros.node.create_publisher(Clock, "/clock", 10)
        ros.node.create_timer(0.01, self._tell)

    def _tell(self):
        message = Clock()
        set_stamp(message.clock, time.monotonic_ns() + self._offset_ns)
        self._clock.publish(message)

    def jump(self, size_s):
        self._offset_ns += round(size_s * 1e9)

    def begin_again(self):
        """Back to the bag's start; returns the size of the jump in seconds."""
        before, self._offset_ns = self._offset_ns, START_NS - time.monotonic_ns()
        return (self._offset_ns - before) / 1e9


def parameters(**values):
    return ["--ros-args", *(part for name, value in values.items() for part in ("-p", f"{name}:={value}"))]


def number(message):
    """Of the request that the message goes back to; -1 where it follows no plan."""
    return int(message.header.frame_id.partition(":")[2] or -1)


def reported(process):
    return [float(size) for size in re.findall(r"the ROS clock jumped by ([-+.\d]+) s", process.log())]


@pytest.fixture
def stack(spawn, ros, tmp_path):
    player = Player(ros)
    common = {"robot": "so101_sim", "use_sim_time": "true"}
    spawn("vla_runtime.sim.robot_node", *parameters(cameras="false", use_sim_time="true", realtime_priority=40))
    spawn("vla_runtime.sim.pattern_cameras", *parameters(use_sim_time="true"))
    bundle = write_tiny_bundle(tmp_path / "bundle")
    processes = {
        "watchdog": spawn("vla_runtime.nodes.watchdog_node", *parameters(**common, **TOLERANT)),
        "executor": spawn("vla_runtime.nodes.executor_node", *parameters(**common)),
        "policy": spawn("vla_runtime.nodes.policy_node", *parameters(
            **common, bundle=bundle, max_input_age_s=1.0, frame_wait_s=0.5)),
    }  # fmt: skip
    return player, processes


@pytest.mark.timeout(180)
def test_jumps_and_a_looped_bag_leave_the_stream_alone(stack, ros):
    player, processes = stack
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    commands = ros.listen(JointTrajectory, "joint_trajectory")
    chunks = ros.listen(JointTrajectory, "action_chunk")
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    ros.wait(lambda: states and states[-1][1].message == "NOMINAL", 60.0, "NOMINAL")
    ros.wait(lambda: len(chunks) > 5, 20.0, "plans")
    seen, begin = len(states), len(commands)

    sizes = []
    for strike in (lambda: player.jump(-5.0) or -5.0, lambda: player.jump(5.0) or 5.0, *2 * [player.begin_again]):
        time.sleep(LOOP_S)
        plans = len(chunks)
        sizes.append(strike())
        ros.wait(lambda: all(len(reported(p)) == len(sizes) for p in processes.values()), 10.0, "each node's report")
        # New plans are made of inputs that carry the new time, and the arm goes by them.
        ros.wait(lambda n=plans: len(chunks) > n + 3, 10.0, "new plans")
        newest = number(chunks[-1][1])
        ros.wait(lambda plan=newest: number(commands[-1][1]) >= plan, 10.0, "the new plan in command")

    for process in processes.values():
        assert reported(process) == pytest.approx(sizes, abs=0.3)
    assert {message.message for _, message in states[seen:]} <= {"NOMINAL", "COASTING"}
    stream = [message for _, message in commands[begin:]]
    assert all(message.header.frame_id for message in stream), "a fallback was commanded"
    arrivals = [at for at, _ in commands[begin:]]
    assert len(stream) > 0.9 * 50 * (arrivals[-1] - arrivals[0])
    # Simulated stamps come in the steps of /clock: how far apart two commands are is taken from their arrival.
    for (at, earlier), (then, later) in zip(commands[begin:], commands[begin + 1 :]):
        periods = max(1, round((then - at) / 0.02) + 1)
        for q0, q1, limit in zip(earlier.points[0].positions, later.points[0].positions, LIMITS.velocity):
            assert abs(q1 - q0) <= limit * 0.02 * periods * 1.02
    seen = len(diagnostics)
    ros.wait(lambda: len(diagnostics) > seen + 2 * len(NODES), 10.0, "diagnostics")
    told = {status.name.split(":")[0]: pair.value for _, array in diagnostics for status in array.status
            for pair in status.values if pair.key == "clock_jumps"}  # fmt: skip
    assert {name: told[name] for name in NODES} == dict.fromkeys(NODES, "4")
