"""What the watchdog's node sends, and when it does not; its core stands aside."""

import math
from types import SimpleNamespace

import pytest

from vla_runtime.control.drive import ABANDONED_S
from vla_runtime.control.watchdog_states import Command, State
from vla_runtime.nodes.publishers import DISCOVERY_S, GIVE_WAY_S, LISTEN_S
from vla_runtime.nodes.watchdog_node import WatchdogNode


@pytest.mark.parametrize(("late_s", "sent"), [(-0.004, True), (0.0, True), (0.015, True), (0.021, False), (5.0, False)])
def test_a_command_that_a_stopped_process_would_send_when_it_wakes_is_not_sent(lonely, monkeypatch, late_s, sent):
    """It was the first thing that it said: 0.1 to 5 s old, in one of five stops."""
    node = lonely(WatchdogNode, "--ros-args", "-p", "autostart:=false")
    said = []
    node.core = SimpleNamespace(unsaid=lambda: said.append("unsaid"))
    monkeypatch.setattr(node, "steady_now", lambda: 100.0 + late_s)
    node._in_time(100.0, lambda: said.append("sent"))()
    assert said == ["sent" if sent else "unsaid"]


def test_one_that_has_slept_listens_before_it_speaks_again(lonely, monkeypatch):
    """Another may have taken the arm. It listens until it commands, and as long after that as at its start."""
    node = lonely(WatchdogNode, "--ros-args", "-p", "autostart:=false")
    heard = []
    node.output = SimpleNamespace(ready=lambda trajectory: heard.append, listen_again=lambda: heard.append("listens"))
    at = SimpleNamespace(start=100.0)
    until = []
    for k, (trajectory, state) in enumerate(
        [(None, State.WARMUP), (at, State.NOMINAL), (at, State.NOMINAL), (None, State.FALLBACK), (None, State.FALLBACK),
         (at, State.NOMINAL)]
    ):  # fmt: skip
        node._ticked = float(k)
        node._say(Command(trajectory, state, "", "none"))
        until.append(node._listens_until)
    node.outbox.deliver()
    assert heard == ["listens"]
    assert until == [math.inf, 1.0 + GIVE_WAY_S, 1.0 + GIVE_WAY_S, math.inf, math.inf, 5.0 + GIVE_WAY_S]


def test_an_arm_counts_as_abandoned_as_soon_as_another_may_have_taken_it():
    assert pytest.approx(DISCOVERY_S + LISTEN_S) == ABANDONED_S
