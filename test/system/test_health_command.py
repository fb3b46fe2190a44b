"""`vla health` as a health check runs it: a process of its own against a state on the wire."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.qos import DurabilityPolicy, QoSProfile

ROOT = Path(__file__).resolve().parents[2]


def health(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "vla_runtime.cli", "health", *args], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def say(ros):
    """`say(state)` publishes a state of the watchdog, latched, twice a second."""
    publisher = ros.node.create_publisher(
        DiagnosticStatus, "watchdog/state", QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    )
    done = threading.Event()
    threads = []

    def start(state: str, again: bool = True) -> None:
        values = [KeyValue(key="cause", value="the answer came"), KeyValue(key="in_command", value="policy")]
        message = DiagnosticStatus(name="watchdog", message=state, values=values)

        def loop() -> None:
            publisher.publish(message)
            while again and not done.wait(0.5):
                publisher.publish(message)

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    yield start
    done.set()
    for thread in threads:
        thread.join()


def test_a_good_state_is_exit_0(say):
    say("NOMINAL")
    done = health("--timeout", "20")
    assert (done.returncode, done.stdout) == (0, "NOMINAL: the answer came (in command: policy)\n")


def test_a_bad_state_is_exit_1_with_its_cause(say):
    say("FAULT")
    done = health("--timeout", "20")
    assert done.returncode == 1
    assert "FAULT: the answer came" in done.stdout


def test_a_state_that_is_not_renewed_is_exit_1(say):
    say("NOMINAL", again=False)
    done = health("--timeout", "4")
    assert done.returncode == 1
    assert "old" in done.stdout


def test_silence_is_exit_1(ros):
    done = health("--timeout", "2")
    assert done.returncode == 1
    assert "nobody publishes watchdog/state" in done.stdout
