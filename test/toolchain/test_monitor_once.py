"""`vla monitor --once` ends in bounded time, whatever DDS does."""

import argparse
import sys
import time
from types import SimpleNamespace

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.bounded import within
from vla_runtime.toolchain.monitor import command


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
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
    monkeypatch.setattr(command, "GRACE_S", 0.5)
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"no end after 0\.7 s \(0\.2 s of --wait\): joining or leaving"):
        command.run(arguments("--once", "--wait", "0.2"))
    assert time.monotonic() - begin < 20.0
