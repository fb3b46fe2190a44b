"""A run of the real nodes, recorded, comes out of a replay equal to the last bit: control 20 times, the policy once."""

import signal
import time

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.policy.policy import load_policy
from vla_runtime.toolchain.replay.exact import read_traces, replay
from vla_runtime.toolchain.replay.inference import recompute
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

COMMANDS = 100


@pytest.mark.timeout(280)
def test_every_decision_of_a_recorded_run_comes_out_equal(spawn, ros, tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle")
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    commands = ros.listen(JointTrajectory, "joint_trajectory")
    bag = tmp_path / "bag"
    recorder = spawn("vla_runtime.cli", "record", str(bag))
    robot = spawn("vla_runtime.sim.robot_node", "--ros-args", "-p", "camera_fps:=10.0", "-p", "camera_width:=64",
                  "-p", "camera_height:=64")  # fmt: skip
    common = ("--ros-args", "-p", "robot:=so101_sim")
    nodes = [
        spawn("vla_runtime.nodes.watchdog_node", *common),
        spawn("vla_runtime.nodes.executor_node", *common),
        spawn("vla_runtime.nodes.policy_node", *common, "-p", f"bundle:={bundle}"),
    ]
    ros.wait(lambda: any(message.message == "NOMINAL" for _, message in states), 150, "the policy in command")
    ros.wait(lambda: len(commands) > COMMANDS, 60, "two seconds of commands")
    nodes[2].signal(signal.SIGKILL)
    time.sleep(1.0)
    for node in (*nodes, robot):
        node.stop(20.0)
    assert recorder.stop(30.0) == 0, recorder.log()

    traces = read_traces(bag)
    assert {session.node for session in traces.sessions} == {"executor", "watchdog"}
    assert traces.headless == {}
    for session in traces.sessions:
        assert sum(call["call"] == "tick" for call in session.calls) > COMMANDS
        for _ in range(20):
            outcome = replay(session)
            assert outcome.same, outcome.difference
    answers = recompute(bag, load_policy(bundle))
    assert answers.equal > 3
    assert answers.same, answers.differences[:3]
    # Pictures are best effort: on a busy machine the bag lacks some. What can be computed again came out equal.
    assert answers.equal + answers.without_pictures == answers.answers
