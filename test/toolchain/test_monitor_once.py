"""`vla monitor --once` and `vla health` end in bounded time, whatever DDS does."""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain import bounded, health_command
from vla_runtime.toolchain.bounded import within
from vla_runtime.toolchain.monitor import command

ROOT = Path(__file__).resolve().parents[2]


def until(condition, what: str) -> None:
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether no such process runs; one that nobody has waited for yet does not."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def arguments(*words: str, of=command) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    of.add_arguments(parser)
    return parser.parse_args(words)


def test_the_exit_code_is_that_of_the_work(capfd):
    def work() -> int:
        print("a screen")
        return 7

    assert within(20.0, work) == 7
    assert capfd.readouterr().out == "a screen\n"


def test_what_fails_says_so_and_fails(capfd):
    assert within(20.0, lambda: 1 // 0) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_domain_that_cannot_be_joined_is_an_error_in_time(monkeypatch):
    """As where a process that is gone holds a lock in shared memory."""
    hanging = SimpleNamespace(Listener=lambda *_: time.sleep(600.0))
    monkeypatch.setitem(sys.modules, "vla_runtime.toolchain.monitor.listener", hanging)
    monkeypatch.setattr(bounded, "GRACE_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"no end after 0\.7 s \(0\.2 s of --wait\): joining or leaving"):
        command.run(arguments("--once", "--wait", "0.2"))
    assert time.monotonic() - begin < 20.0


def test_a_health_check_ends_in_time_too(monkeypatch):
    """A container whose check never ends is never called unhealthy."""
    monkeypatch.setattr(health_command, "watch", lambda *_: time.sleep(600.0))
    monkeypatch.setattr(bounded, "GRACE_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"no end after 0\.7 s \(0\.2 s of --timeout\): joining or leaving"):
        health_command.run(arguments("--timeout", "0.2", of=health_command))
    assert time.monotonic() - begin < 20.0


def test_whoever_is_killed_leaves_no_process_that_hangs(tmp_path):
    """A health check that takes too long is killed, every ten seconds another one."""
    note = tmp_path / "pid"
    script = (
        "import os, pathlib, time; from vla_runtime.toolchain.bounded import within\n"
        f"within(600.0, lambda: (pathlib.Path({str(note)!r}).write_text(str(os.getpid())), time.sleep(600.0))[0])"
    )
    waiting = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    until(lambda: note.exists() and note.read_text(), "the work to begin")
    pid = int(note.read_text())
    waiting.kill()
    waiting.wait()
    until(lambda: gone(pid), "the work to end")
