"""How the nodes begin: refused and mended, refused by a rival, told by a lifecycle manager."""

import time
from pathlib import Path

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import TrajectoryWriter
from vla_runtime.nodes.publishers import GIVE_WAY_S

WATCHDOG = "vla_runtime.nodes.watchdog_node"
PLAYED = ELDER, YOUNGER = "0" * 16, "f" * 16  # as instances
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def state(ros, node="watchdog"):
    return ros.call(GetState, f"{node}/get_state", timeout_s=20.0).current_state.label


def test_a_parameter_out_of_range_is_mended_while_a_rival_publishes(spawn, ros):
    watchdog = spawn(WATCHDOG, "--ros-args", "-p", "robot:=so101_sim", "-p", "stream_deadline_s:=99.0")
    assert state(ros) == "unconfigured"
    ros.wait(lambda: "stream_deadline_s = 99 is outside its range (0.01 to 1 s)" in watchdog.log(), 20.0, "the reason")

    rival = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=0.0)
    timer = ros.node.create_timer(0.02, lambda: rival.publish(JointTrajectory()))
    value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=0.05)
    request = SetParameters.Request(parameters=[Parameter(name="stream_deadline_s", value=value)])
    assert ros.call(SetParameters, "watchdog/set_parameters", request).results[0].successful

    ros.wait(
        lambda: "another publisher sends on topic '/joint_trajectory' (/probe" in watchdog.log(), 20.0, "the rival"
    )
    assert state(ros) == "inactive"
    ros.node.destroy_timer(timer)
    ros.node.destroy_publisher(rival)
    ros.wait(lambda: state(ros) == "active", 20.0, "the watchdog to begin by itself")
    assert watchdog.stop() == 0


def test_a_rival_that_is_found_only_after_activation_is_given_way_to(spawn, ros):
    """Discovery may take seconds on a busy machine: two watchdogs drove one arm."""
    watchdog = spawn(WATCHDOG, "--ros-args", "-p", "robot:=so101_sim")
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    ros.wait(lambda: states and states[-1][1].message == "WARMUP", 20.0, "WARMUP")

    rival = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=0.0)
    timer = ros.node.create_timer(0.02, lambda: rival.publish(JointTrajectory()))
    ros.wait(lambda: state(ros) == "inactive", 20.0, "the watchdog to give way")
    reason = "cannot activate: another publisher sends on topic '/joint_trajectory' (/probe"
    ros.wait(lambda: reason in watchdog.log(), 5.0, "the reason")
    ros.node.destroy_timer(timer)
    ros.node.destroy_publisher(rival)
    ros.wait(lambda: states[-1][1].message == "WARMUP", 20.0, "the watchdog to begin again by itself")
    assert watchdog.stop() == 0
    assert "Traceback" not in watchdog.log()


def test_a_rival_that_is_found_only_after_the_first_commands_is_given_way_to_for_good(spawn, ros):
    """Nor may two that began at once go on beginning: the one that has commanded waits to be told."""
    spawn("vla_runtime.sim.controllers_node")
    watchdog = spawn(WATCHDOG, "--ros-args", "-p", "robot:=so101_sim")
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    joints, commands = ros.listen(JointState, "joint_states"), ros.listen(JointTrajectory, "joint_trajectory")
    ros.wait(lambda: joints and states and "no plan was answered" in str(states[-1][1].values), 20.0, "joint states")
    leader, names = ros.publisher(JointTrajectory, "teleop_trajectory"), joints[-1][1].name
    writer, stay = TrajectoryWriter(names), np.tile(joints[-1][1].position, (2, 1))
    ros.node.create_timer(
        0.02, lambda: leader.publish(writer.write(time.time_ns(), "leader", np.array([0.0, 0.3]), stay, 0.0 * stay))
    )
    ros.wait(lambda: len(commands) > 50, 10.0, "commands, none of which it takes for a rival's")
    assert states[-1][1].message == "TELEOP"

    rival = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=0.0)
    ros.node.create_timer(0.02, lambda: rival.publish(JointTrajectory()))
    ros.wait(lambda: state(ros) == "inactive", 10.0, "the watchdog to give way")
    ros.wait(lambda: "another publisher sends on topic '/joint_trajectory'" in watchdog.log(), 5.0, "the reason")
    assert "(trying again)" not in watchdog.log()
    assert watchdog.stop() == 0
    assert "Traceback" not in watchdog.log()


def one_that_commands(spawn, ros):
    """A watchdog with an operator at the wheel, and a function that gives the newest values of its state."""
    spawn("vla_runtime.sim.controllers_node")
    watchdog = spawn(WATCHDOG, "--ros-args", "-p", "robot:=so101_sim")
    states, joints = ros.latched(DiagnosticStatus, "watchdog/state"), ros.listen(JointState, "joint_states")

    def own():
        told = [{pair.key: pair.value for pair in status.values} for _, status in list(states)]
        told = [values for values in told if values["instance"] not in PLAYED]
        return told[-1] if told else {}

    ros.wait(lambda: joints and "no plan was answered" in own().get("cause", ""), 20.0, "joint states")
    leader, names = ros.publisher(JointTrajectory, "teleop_trajectory"), joints[-1][1].name
    writer, stay = TrajectoryWriter(names), np.tile(joints[-1][1].position, (2, 1))
    ros.node.create_timer(
        0.02, lambda: leader.publish(writer.write(time.time_ns(), "leader", np.array([0.0, 0.3]), stay, 0.0 * stay))
    )
    ros.wait(lambda: own()["in_command"] == "teleop", 10.0, "the first command")
    return watchdog, own


@pytest.mark.parametrize(("other", "comes_back"), [(YOUNGER, True), (ELDER, False)], ids=["later", "earlier"])
def test_of_two_watchdogs_that_let_go_for_each_other_the_first_comes_back(spawn, ros, other, comes_back):
    """It took a person to go on. The other one is played: it commands, hears this one and lets go."""
    watchdog, own = one_that_commands(spawn, ros)
    rival = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=0.0)
    voice = ros.publisher(DiagnosticStatus, "watchdog/state", LATCHED)
    commands = ros.node.create_timer(0.02, lambda: rival.publish(JointTrajectory()))
    ros.wait(lambda: own()["gave_way"] == "true", 10.0, "the watchdog to let go")
    ros.node.destroy_timer(commands)
    values = [KeyValue(key=key, value=value) for key, value in
              (("instance", other), ("in_command", "none"), ("gave_way", "true"))]  # fmt: skip
    ros.node.create_timer(0.5, lambda: voice.publish(DiagnosticStatus(message="INACTIVE", values=values)))
    assert own()["cause"].startswith("gave way: another publisher sends on topic '/joint_trajectory'")
    if comes_back:
        ros.wait(lambda: own()["in_command"] == "teleop", 15.0, "the first to begin again")
        assert own()["gave_way"] == "false"
    else:
        reason = f"watchdog {other} commanded on '/joint_trajectory' too, and it began before this one"
        ros.wait(lambda: reason in watchdog.log(), 10.0, "the second to say for whom it waits")
        time.sleep(2.5)
        assert own()["in_command"] == "none" and state(ros) == "inactive"
    assert watchdog.stop() == 0
    assert "Traceback" not in watchdog.log()


def test_one_that_listens_no_more_gives_way_to_an_elder_that_commands_and_to_nobody_else(spawn, ros):
    """Two that found each other only then drove on together. The other one is played."""
    watchdog, own = one_that_commands(spawn, ros)
    time.sleep(GIVE_WAY_S + 1.6)  # now its ears are closed

    rival = ros.publisher(JointTrajectory, "joint_trajectory", wait_s=0.0)
    voice = ros.publisher(DiagnosticStatus, "watchdog/state", LATCHED)
    says = {"instance": YOUNGER, "in_command": "policy"}

    def speak():
        voice.publish(DiagnosticStatus(values=[KeyValue(key=key, value=value) for key, value in says.items()]))

    ros.node.create_timer(0.25, speak)
    commands = ros.node.create_timer(0.02, lambda: rival.publish(JointTrajectory()))
    time.sleep(1.0)
    assert own()["in_command"] == "teleop", "it began before the other one: that is the one to give way"
    commands.cancel()
    says["instance"] = ELDER
    ros.wait(lambda: f"watchdog {ELDER}, which began before this one" in watchdog.log(), 5.0, "that it listens again")
    time.sleep(0.7)
    assert own()["in_command"] == "teleop", "all that it heard were its own commands"
    commands.reset()
    ros.wait(lambda: own()["gave_way"] == "true", 4.0, "the watchdog to give way")
    ros.wait(lambda: f"watchdog {ELDER} commanded on" in watchdog.log(), 5.0, "for whom it waits")
    assert state(ros) == "inactive" and own()["in_command"] == "none"
    assert watchdog.stop() == 0
    assert "Traceback" not in watchdog.log()


def test_a_lifecycle_manager_is_in_charge_without_autostart(spawn, ros):
    executor = spawn(
        "vla_runtime.nodes.executor_node", "--ros-args", "-p", "robot:=so101_sim", "-p", "autostart:=false"
    )
    states = ros.latched(DiagnosticStatus, "executor/state")
    assert state(ros, "executor") == "unconfigured"
    for transition, label in (
        (Transition.TRANSITION_CONFIGURE, "inactive"),
        (Transition.TRANSITION_ACTIVATE, "active"),
        (Transition.TRANSITION_DEACTIVATE, "inactive"),
        (Transition.TRANSITION_CLEANUP, "unconfigured"),
    ):
        request = ChangeState.Request(transition=Transition(id=transition))
        assert ros.call(ChangeState, "executor/change_state", request).success
        assert state(ros, "executor") == label
    ros.wait(lambda: states, 5.0, "its state")
    assert "waiting for the first plan" in executor.log()
    assert executor.stop() == 0


def test_a_node_that_ends_gives_its_shared_memory_back(spawn, ros):
    policy = spawn("vla_runtime.nodes.policy_node")
    assert state(ros, "policy") == "unconfigured"
    maps = Path(f"/proc/{policy.pid}/maps").read_text().splitlines()
    segments = {Path(line.split()[-1]) for line in maps if "/dev/shm/fastdds_" in line and "_port" not in line}
    mapped = {path for path in segments if path.exists()}  # its own, and those of whom it talks to: the test itself
    assert mapped
    assert policy.stop() == 0
    assert len([path for path in mapped if path.exists()]) == len(mapped) - 1
