"""What the watchdog's node sends, and when it does not; its core stands aside."""

from types import SimpleNamespace

import pytest

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
