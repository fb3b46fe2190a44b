"""The launch files run for real, wherever `launch_ros` can be imported and the package is installed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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

    def __init__(self, path: Path, arguments: list[str], log: Path):
        self.log_path = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-u", "-c", DRIVER, str(path), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
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
        """The running nodes of this launch: executable name -> pid."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
                command = (stat.parent / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(fields[1]) == self.popen.pid:
                for word in command:
                    if word.endswith(b"_node"):
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

    def start(name: str, *words: str) -> Launched:
        made.append(Launched(ROOT / "launch" / name, list(words), tmp_path / f"{len(made)}.log"))
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


@pytest.mark.timeout(240)
def test_control_comes_up_takes_parameters_survives_a_kill_and_ends_by_ctrl_c(launched, state_of, ros):
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import SetParameters

    run = launched("robot.launch.py", "robot:=so101_sim", "policy:=false", "controller_topic:=arm/joint_trajectory",
                   "respawn_delay:=0.5")  # fmt: skip
    for node in ("watchdog", "executor"):
        run.wait(lambda node=node: state_of(node) == "active", 60, f"{node} to be active")

    def set_k(value: int) -> tuple[bool, str]:
        parameter = Parameter(name="k", value=ParameterValue(type=ParameterType.PARAMETER_INTEGER, integer_value=value))
        answer = ros.call(SetParameters, "executor/set_parameters", SetParameters.Request(parameters=[parameter]))
        return answer.results[0].successful, answer.results[0].reason

    assert set_k(12)[0]
    done, reason = set_k(100000)
    assert not done
    assert "1000" in reason

    assert ros.node.count_publishers("/arm/joint_trajectory") == 1
    before = run.wait(lambda: run.pids().get("executor_node"), 10, "the executor's process")
    os.kill(before, signal.SIGKILL)
    run.wait(lambda: run.pids().get("executor_node", before) != before, 60, "a new executor")
    run.wait(lambda: state_of("executor") == "active", 60, "the new executor to be active")
    assert "starting it again in 0.5 s" in run.log()

    pids = set(run.pids().values())
    run.end()
    assert "process has finished cleanly" in run.log()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "a node outlived the launch"


@pytest.mark.timeout(120)
def test_a_params_file_that_is_not_there_is_an_error(launched):
    run = launched("robot.launch.py", "params_file:=/nowhere.yaml", "policy:=false")
    end = time.monotonic() + 60
    while run.popen.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert run.popen.returncode not in (None, 0)
    assert "there is no file '/nowhere.yaml'" in run.log()
