"""Fixtures for tests of real nodes: a DDS domain of their own, real processes, and a probe that listens and talks.

    def test_something(spawn, ros):
        robot = spawn("vla_runtime.sim.robot_node", "--ros-args", "-p", "cameras:=false")
        states = ros.listen(JointState, "joint_states")
        ros.wait(lambda: len(states) > 10, 10.0, "joint states")
        robot.signal(signal.SIGSTOP)

`spawn` and `ros` share the domain of the test (`ros_domain`); whatever was spawned is dead when the test ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vla_runtime.nodes.transport import NO_TYPE_LOOKUP, PROFILES
from vla_runtime.paths import share
from vla_runtime.toolchain.demo.domains import held_domain

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items):
    """Everything below this folder is a system test."""
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.system)


@contextlib.contextmanager
def domain_of_ours():
    """A DDS domain that no other program on this machine holds, as an int; ROS_DOMAIN_ID is set to it meanwhile."""
    with held_domain() as domain, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_DOMAIN_ID", str(domain))
        patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        patch.setenv("RCUTILS_COLORIZED_OUTPUT", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv(PROFILES[0], str(share(*NO_TYPE_LOOKUP)))
        yield domain


@pytest.fixture
def ros_domain():
    """A domain for this test alone."""
    with domain_of_ours() as domain:
        yield domain


@pytest.fixture(scope="module")
def shared_domain():
    """A domain for all tests of a module that share their processes (`shared_spawn`, `shared_ros`)."""
    with domain_of_ours() as domain:
        yield domain


class Process:
    """One spawned node: its output, its signals, its end."""

    def __init__(self, module: str, args: tuple[str, ...], env: dict[str, str], log_path: Path):
        self.module = module
        self.log_path = log_path
        # Created by us, closed by the child's end: the log outlives every way of dying, kill -9 included.
        with log_path.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-u", "-m", module, *args],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.popen.poll() is None

    def log(self) -> str:
        """All that it has written so far, stdout and stderr."""
        return self.log_path.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the process and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end by itself; returns the exit status."""
        return self.popen.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> int:
        """End it as Ctrl-C does; by force when it does not end. Returns the exit status."""
        if self.alive:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGINT)
            try:
                self.popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
        self.signal(signal.SIGKILL)
        return self.popen.wait(timeout_s)


@contextlib.contextmanager
def spawner(folder: Path):
    """Gives a function that starts processes; whatever it started is dead afterwards."""
    started: list[Process] = []

    def start(module: str, *args: str, **env: str) -> Process:
        log_path = folder / f"{len(started)}-{module.rsplit('.', 1)[-1]}.log"
        process = Process(module, args, {**os.environ, **env}, log_path)
        started.append(process)
        return process

    yield start
    for process in reversed(started):
        process.stop()
    for process in started:
        # pytest shows captured output only for a test that failed.
        print(f"---- {process.module} (exit {process.popen.returncode})\n{process.log()[-4000:]}")


@pytest.fixture
def spawn(ros_domain, tmp_path):
    """`spawn(module, *args, **env)` starts `python -m module args` in the test's domain and returns a Process."""
    with spawner(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared_spawn(shared_domain, tmp_path_factory):
    """As `spawn`, for processes that all tests of a module share."""
    with spawner(tmp_path_factory.mktemp("processes")) as start:
        yield start


class Probe:
    """A node in the test's own process: listens, publishes, calls services, and waits for what should happen."""

    def __init__(self, domain: int):
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        from vla_runtime.nodes.realtime import prepare_interpreter

        prepare_interpreter()  # what a thousand tests before left behind must not be walked while this one keeps time
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("probe", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        from rclpy.exceptions import InvalidHandle
        from rclpy.executors import ExternalShutdownException, ShutdownException

        with contextlib.suppress(ExternalShutdownException, ShutdownException):
            while not self._closing.is_set():
                try:
                    self.executor.spin_once()
                except InvalidHandle:
                    time.sleep(0.001)  # a test has destroyed an entity while this thread was about to wait for it

    def listen(self, message_type, topic: str, qos=10) -> list:
        """Subscribe; returns the list that grows: (steady seconds of the arrival, message)."""
        received: list = []
        self.node.create_subscription(message_type, topic, lambda m: received.append((time.monotonic(), m)), qos)
        return received

    def latched(self, message_type, topic: str) -> list:
        """As `listen`, for a transient-local topic of depth 1."""
        from rclpy.qos import DurabilityPolicy, QoSProfile

        return self.listen(message_type, topic, QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL))

    def publisher(self, message_type, topic: str, qos=1, wait_s: float = 10.0):
        """A publisher; waits until somebody listens (wait_s = 0: does not wait)."""
        publisher = self.node.create_publisher(message_type, topic, qos)
        if wait_s:
            self.wait(lambda: publisher.get_subscription_count() > 0, wait_s, f"a subscriber of {topic}")
        return publisher

    def call(self, service_type, name: str, request=None, timeout_s: float = 10.0):
        """Call a service and return its response; an absent or silent service fails the test."""
        client = self.node.create_client(service_type, name)
        try:
            self.wait(client.service_is_ready, timeout_s, f"service {name}")
            future = client.call_async(request or service_type.Request())
            self.wait(future.done, timeout_s, f"an answer of {name}")
            return future.result()
        finally:
            self.node.destroy_client(client)

    def wait(self, condition, timeout_s: float, what: str = "the condition"):
        """Wait until the condition is true, and return its value; fails the test after timeout_s."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.005)
        return pytest.fail(f"waited {timeout_s} s in vain for {what}")

    def close(self) -> None:
        """Stop listening and leave the domain."""
        self._closing.set()
        self.executor.shutdown()
        self._thread.join(5.0)
        self.node.destroy_node()
        self.context.try_shutdown()


@pytest.fixture
def ros(ros_domain):
    """A Probe in the test's domain."""
    with contextlib.closing(Probe(ros_domain)) as probe:
        yield probe


@pytest.fixture(scope="module")
def shared_ros(shared_domain):
    """A Probe in the domain of a module's tests."""
    with contextlib.closing(Probe(shared_domain)) as probe:
        yield probe
