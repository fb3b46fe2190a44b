"""`vla monitor --once` against a real watchdog, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from diagnostic_msgs.msg import DiagnosticStatus

ROOT = Path(__file__).resolve().parents[2]


def monitor(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "vla_runtime.cli", "monitor", "--once", *args],
        cwd=ROOT, capture_output=True, text=True, timeout=90, env=None,
    )  # fmt: skip


def test_it_shows_the_state_of_a_watchdog_in_a_namespace(spawn, ros):
    states = ros.latched(DiagnosticStatus, "/left/watchdog/state")
    spawn("vla_runtime.nodes.watchdog_node", "--ros-args", "-r", "__ns:=/left", "-p", "robot:=so101_sim",
          "-p", "realtime_priority:=0")  # fmt: skip
    ros.wait(lambda: any(message.message == "WARMUP" for _, message in states), 60, "an active watchdog")
    done = monitor("--namespace", "left", "--wait", "5")
    assert done.returncode == 0, done.stderr
    assert "WARMUP" in done.stdout
    assert "nothing published" in done.stdout
    assert "watchdog loop" in done.stdout
    assert "/ 100" in done.stdout, "the deadline of the joint states, asked of the watchdog"
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_nothing_to_hear_is_exit_1(ros):
    done = monitor("--wait", "1")
    assert done.returncode == 1
    assert "Nothing heard" in done.stdout
