"""The launch files run for real, wherever `launch_ros` can be imported and the package is installed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import set_stamp
from vla_runtime.nodes.robot_file import load_robot

pytest.importorskip("launch_ros", reason="launch_ros is not on PyPI: source a ROS installation to run these tests")

from ament_index_python.packages import PackageNotFoundError, get_package_prefix  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
path, *words = sys.argv[1:]
given = dict(word.split(":=", 1) for word in words)
service = LaunchService(argv=words)
service.include_launch_description(LaunchDescription([
    IncludeLaunchDescription(AnyLaunchDescriptionSource(path), launch_arguments=given.items())]))
sys.exit(service.run())
"""


class Launched:
    """A launch file in a process of its own, ended as Ctrl-C in a terminal ends it."""

    def __init__(self, path: Path, arguments: list[str], log: Path, environment: dict[str, str]):
        self.log_path = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-u", "-c", DRIVER, str(path), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **environment},
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            )  # fmt: skip

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait(self, condition, timeout_s: float, what: str):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if value := condition():
                return value
            assert self.popen.poll() is None, f"the launch ended by itself:\n{self.log()[-3000:]}"
            time.sleep(0.1)
        return pytest.fail(f"waited {timeout_s} s in vain for {what}:\n{self.log()[-3000:]}")

    def pids(self) -> dict[str, int]:
        """The running processes of this launch that are ours: name of the executable -> pid."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
                command = (stat.parent / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(fields[1]) == self.popen.pid:
                for word in command:
                    if b"/lib/vla_runtime/" in word:
                        found[word.rsplit(b"/", 1)[-1].decode()] = int(stat.parent.name)
        return found

    def end(self, timeout_s: float = 40.0) -> int:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGINT)
            try:
                return self.popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
        return self.popen.wait(10)


@pytest.fixture
def launched(ros_domain, tmp_path):
    try:
        get_package_prefix("vla_runtime")
    except PackageNotFoundError:
        pytest.skip("the package is not installed: colcon build, and source the workspace")
    made: list[Launched] = []

    def start(name: str, *words: str, **environment: str) -> Launched:
        made.append(Launched(ROOT / "launch" / name, list(words), tmp_path / f"{len(made)}.log", environment))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def state_of(ros):
    """`state_of(node)` is the label of a node's lifecycle state, or "" while it does not answer."""
    from lifecycle_msgs.srv import GetState

    def ask(node: str) -> str:
        client = ros.node.create_client(GetState, f"{node}/get_state")
        try:
            if not client.wait_for_service(0.5):
                return ""
            future = client.call_async(GetState.Request())
            end = time.monotonic() + 3.0
            while not future.done() and time.monotonic() < end:
                time.sleep(0.01)
            return future.result().current_state.label if future.done() else ""
        finally:
            ros.node.destroy_client(client)

    return ask


@pytest.fixture
def set_live(ros):
    """`set_live(name, value)`: whether the executor took it, and its reason if not."""
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import SetParameters

    def ask(name: str, number: float) -> tuple[bool, str]:
        if isinstance(number, int):
            value = ParameterValue(type=ParameterType.PARAMETER_INTEGER, integer_value=number)
        else:
            value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=number)
        request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
        answer = ros.call(SetParameters, "executor/set_parameters", request)
        return answer.results[0].successful, answer.results[0].reason

    return ask


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

    return write_tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


def comes_to_an_end(run: Launched) -> None:
    """Ctrl-C ends everything in order, and nobody stays."""
    pids = run.pids()
    run.end()
    assert run.log().count("process has finished cleanly") >= len(pids), run.log()[-3000:]
    assert not [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()], "a node outlived the launch"


@pytest.mark.timeout(240)
def test_control_comes_up_takes_parameters_survives_a_kill_and_ends_by_ctrl_c(launched, state_of, set_live, ros):
    run = launched("robot.launch.py", "robot:=so101_sim", "policy:=false", "controller_topic:=arm/joint_trajectory",
                   "respawn_delay:=0.5")  # fmt: skip
    for node in ("watchdog", "executor"):
        run.wait(lambda node=node: state_of(node) == "active", 60, f"{node} to be active")

    assert set_live("k", 12)[0]
    done, reason = set_live("k", 100000)
    assert not done
    assert "1000" in reason

    assert ros.node.count_publishers("/arm/joint_trajectory") == 1
    before = run.wait(lambda: run.pids().get("executor_node"), 10, "the executor's process")
    os.kill(before, signal.SIGKILL)
    run.wait(lambda: run.pids().get("executor_node", before) != before, 60, "a new executor")
    run.wait(lambda: state_of("executor") == "active", 60, "the new executor to be active")
    assert "starting it again in 0.5 s" in run.log()

    comes_to_an_end(run)


@pytest.mark.timeout(240)
def test_the_xml_variant_drives_an_arm_and_respawns(launched, state_of, spawn, ros, bundle):
    pytest.importorskip("launch_xml")
    spawn("vla_runtime.sim.robot_node", "--ros-args", "-p", "camera_fps:=10.0", "-p", "realtime_priority:=40")
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    run = launched("robot.launch.xml", "robot:=so101_sim", f"bundle:={bundle}", "controller_topic:=joint_trajectory")
    run.wait(lambda: any(message.message == "NOMINAL" for _, message in states), 90, "the policy in command")
    before = run.pids()["policy_node"]
    os.kill(before, signal.SIGKILL)
    run.wait(lambda: run.pids().get("policy_node", before) != before, 60, "a new policy")
    seen = len(states)
    run.wait(lambda: state_of("policy") == "active", 60, "the new policy to be active")
    run.wait(
        lambda: any(message.message == "NOMINAL" for _, message in states[seen:]), 60, "the policy back in command"
    )
    comes_to_an_end(run)


@pytest.mark.timeout(240)
def test_the_demo_drives_takes_parameters_and_records(launched, state_of, set_live, ros, tmp_path):
    from vla_runtime.toolchain.run_log import read_run

    states = ros.latched(DiagnosticStatus, "watchdog/state")
    run = launched("demo.launch.py", "seed:=3", "instruction:=pick up the blue cube", f"record:={tmp_path / 'bag'}")
    run.wait(lambda: any(message.message == "NOMINAL" for _, message in states), 120, "the policy in command")
    assert {state_of(node) for node in ("watchdog", "executor", "policy")} == {"active"}
    assert set_live("blend_s", 0.3) == (True, "")
    assert not set_live("k", 100000)[0]
    time.sleep(3.0)
    assert set(run.pids()) == {"sim_robot", "watchdog_node", "executor_node", "policy_node"}
    comes_to_an_end(run)
    log = read_run(tmp_path / "bag", images_every_s=None)
    assert len(log.commands) > 100
    assert log.commands[-1].velocities[-1] == pytest.approx(0.0, abs=0.0), "the last word is a stop"


PLAYER = """#!{python}
# Plays a bag as `ros2 bag play` does, as far as replay.launch.py asks for it: the real one has no wheel.
import argparse, importlib, sys, time
from pathlib import Path
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rosbags.rosbag2 import Reader
from rosgraph_msgs.msg import Clock
assert sys.argv[1:3] == ["bag", "play"], sys.argv
parser = argparse.ArgumentParser()
parser.add_argument("bag", type=Path)
parser.add_argument("--storage", choices=["mcap", "sqlite3"])
parser.add_argument("--clock", type=float)
parser.add_argument("--rate", type=float)
parser.add_argument("--loop", action="store_true")
parser.add_argument("--topics", nargs="+")
args = parser.parse_args(sys.argv[3:])
rclpy.init()
node = rclpy.create_node("player")
clock = node.create_publisher(Clock, "/clock", 10)
publishers = {{}}
def tell(now_ns):
    message = Clock()
    message.clock.sec, message.clock.nanosec = divmod(now_ns, 10**9)
    clock.publish(message)
while True:
    with Reader(args.bag) as reader:
        begin, start, told = time.monotonic(), reader.start_time, 0
        for connection, stamp, data in reader.messages():
            if connection.topic not in args.topics:
                continue
            if connection.topic not in publishers:
                package, _, name = connection.msgtype.split("/")
                kind = getattr(importlib.import_module(package + ".msg"), name)
                qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
                publishers[connection.topic] = node.create_publisher(kind, connection.topic, qos)
            while (now := start + int((time.monotonic() - begin) * args.rate * 1e9)) < stamp:
                tell(now)
                time.sleep(1 / args.clock)
            tell(stamp)
            publishers[connection.topic].publish(data)
    if not args.loop:
        break
"""


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """Eight seconds of a resting arm and two cameras; a decision of then is in it too, on its own topic."""
    from rclpy.serialization import serialize_message
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore
    from sensor_msgs.msg import Image, JointState

    joints = load_robot("so101_sim").limits.joint_names
    path = tmp_path_factory.mktemp("bag") / "run"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:

        def topic(name: str, kind: str):
            return writer.add_connection(name, kind, typestore=get_typestore(Stores.ROS2_KILTED))

        states = topic("/arm/joint_states", "sensor_msgs/msg/JointState")
        cameras = [topic(f"/{name}/image_raw", "sensor_msgs/msg/Image") for name in ("front", "wrist")]
        for tick in range(800):
            stamp = 50 * 10**9 + tick * 10**7
            message = JointState(name=list(joints), position=[0.1] * len(joints), velocity=[0.0] * len(joints))
            set_stamp(message.header.stamp, stamp)
            writer.write(states, stamp, serialize_message(message))
            if tick % 10 == 0:
                image = Image(width=64, height=48, encoding="rgb8", step=192, data=bytes([tick % 255] * 9216))
                set_stamp(image.header.stamp, stamp)
                for camera in cameras:
                    writer.write(camera, stamp, serialize_message(image))
    return path


@pytest.mark.timeout(180)
def test_a_bag_is_decided_upon_anew_and_ends_the_launch(launched, ros, bundle, bag, tmp_path):
    player = tmp_path / "bin" / "ros2"
    player.parent.mkdir()
    player.write_text(PLAYER.format(python=sys.executable))
    player.chmod(0o755)
    states = ros.latched(DiagnosticStatus, "watchdog/state")
    decided = ros.listen(JointTrajectory, "replay/joint_trajectory")
    begin = time.monotonic()
    run = launched("replay.launch.py", f"bag:={bag}", f"bundle:={bundle}", "robot:=so101_sim", "delay:=6",
                   "joint_states:=/arm/joint_states", PATH=f"{player.parent}:{os.environ['PATH']}")  # fmt: skip
    run.wait(lambda: any(message.message == "NOMINAL" for _, message in states), 60, "the policy in command")
    run.wait(lambda: len(decided) > 100, 20, "decisions")
    assert 50 <= decided[-1][1].header.stamp.sec < 60, "decisions carry the bag's time"
    while run.popen.poll() is None and time.monotonic() < begin + 100:
        time.sleep(0.1)
    assert run.popen.returncode == 0, run.log()[-3000:]
    assert "the bag is over" in run.log()


@pytest.mark.timeout(120)
def test_a_bag_that_cannot_be_played_is_not_called_over(launched, bundle, bag, tmp_path):
    player = tmp_path / "bin" / "ros2"
    player.parent.mkdir()
    player.write_text("#!/bin/sh\necho \"invalid choice: 'bag'\" >&2\nexit 2\n")
    player.chmod(0o755)
    run = launched("replay.launch.py", f"bag:={bag}", f"bundle:={bundle}", "robot:=so101_sim", "delay:=0.5",
                   PATH=f"{player.parent}:{os.environ['PATH']}")  # fmt: skip
    assert run.popen.wait(60) != 0
    assert "`ros2 bag play` ended with exit status 2" in run.log() and "invalid choice: 'bag'" in run.log()
    assert "the bag is over" not in run.log()
    started = re.findall(r"process started with pid \[(\d+)\]", run.log())
    assert len(started) == 4 and not any(Path("/proc", pid).exists() for pid in started), "something was left behind"


@pytest.mark.timeout(120)
def test_a_replay_names_what_it_lacks(launched, tmp_path):
    for words, reason in ((("bag:=x", "bundle:=/b"), "bundle /b: no such directory"), (("bag:=x",), "bundle is empty")):
        run = launched("replay.launch.py", *words)
        run.popen.wait(60)
        assert run.popen.returncode != 0
        assert reason in run.log()


@pytest.mark.timeout(120)
def test_a_params_file_that_is_not_there_is_an_error(launched):
    run = launched("robot.launch.py", "params_file:=/nowhere.yaml", "policy:=false")
    end = time.monotonic() + 60
    while run.popen.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert run.popen.returncode not in (None, 0)
    assert "there is no file '/nowhere.yaml'" in run.log()
