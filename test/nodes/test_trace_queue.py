"""Calls that wait to be written to the trace: they are gone as fast as they come, whatever the control period."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from vla_runtime.nodes.heartbeat import PERIOD_S as HEARTBEAT_S
from vla_runtime.nodes.lifecycle import HOUSEKEEPING_S
from vla_runtime.nodes.watchdog_node import WatchdogNode


@pytest.fixture(params=[0.004, 0.02, 0.1])
def watchdog(request, lonely):
    """A watchdog of one period whose trace goes to a list.

    ``half_seconds(count)``: in each come as many calls as can be; yields how many are left over.
    """
    period_s = request.param
    deadlines = [f"{name}:={value}" for name, value in (("stream_deadline_s", 0.2), ("window_s", 0.5))]
    pairs = [part for text in (f"period_s:={period_s}", "autostart:=false", *deadlines) for part in ("-p", text)]
    node = lonely(WatchdogNode, "--ros-args", *pairs)
    listeners = SimpleNamespace(count=1)
    lines: list[str] = []
    node._trace = SimpleNamespace(
        get_subscription_count=lambda: listeners.count,
        publish=lambda message: lines.extend(message.data.split("\n")),
    )
    node._traced = SimpleNamespace(tracing=True)
    each = round(HOUSEKEEPING_S * (2 / period_s + 1 / HEARTBEAT_S))

    def half_seconds(count: int) -> Iterator[int]:
        for _ in range(count):
            node._notes.extend(SimpleNamespace(text=lambda: "{}") for _ in range(each))
            node._send_trace()
            yield len(node._notes)

    return SimpleNamespace(node=node, listeners=listeners, lines=lines, half_seconds=half_seconds, each=each)


def test_nothing_is_left_over(watchdog):
    assert list(watchdog.half_seconds(20)) == [0] * 20
    assert len(watchdog.lines) == 20 * watchdog.each


def test_what_waited_for_a_recorder_is_worked_off(watchdog):
    watchdog.listeners.count = 0
    assert list(watchdog.half_seconds(30))[-1] == 30 * watchdog.each and not watchdog.lines  # 15 s
    watchdog.listeners.count = 1
    left = list(watchdog.half_seconds(30))  # 15 s more: one in, two out
    assert max(left) <= 31 * watchdog.each and left[-1] == 0
    assert len(watchdog.lines) == 60 * watchdog.each


def test_nothing_is_noted_for_a_recorder_that_never_comes(watchdog):
    watchdog.listeners.count = 0
    list(watchdog.half_seconds(42))  # 21 s
    assert not watchdog.node._traced.tracing
