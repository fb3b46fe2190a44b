"""Statuses by REP-107."""

import math

from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.nodes.diagnostics import Level, Status, flat, loop_status, text
from vla_runtime.nodes.joint_map import JointReader
from vla_runtime.nodes.loop import LoopFigures
from vla_runtime.nodes.watchdog_report import input_status


def figures(**changes):
    values = {
        "ticks": 5000, "missed": 0, "failed": 0, "rate_hz": 50.0, "period_error_p99_ms": 0.1, "max_gap_ms": 21.0,
        "tick_p99_ms": 1.0, "tick_max_ms": 2.0,
    }  # fmt: skip
    return LoopFigures(**{**values, **changes})


def test_a_message_names_node_and_task():
    status = Status("loop", Level.WARN, "late", {"a": {"b": 1.23456, "c": True}, "d": None, "e": (1, 2)})
    message = status.to_msg("arm/watchdog", "so101")
    assert (message.name, message.level, message.hardware_id) == ("arm/watchdog: loop", b"\x01", "so101")
    assert {pair.key: pair.value for pair in message.values} == {"a.b": "1.235", "a.c": "true", "d": "", "e": "1, 2"}


def test_values_as_people_read_them():
    assert text(math.inf) == "inf"
    assert text(0.000123456) == "0.0001235"
    assert dict(flat({})) == {}


def test_a_loop_in_order():
    status = loop_status(figures(), 0.02, "", "")
    assert (status.level, status.message) == (Level.OK, "50.0 Hz")
    assert (status.values["realtime"], status.values["memory"]) == ("SCHED_FIFO", "locked")


def test_a_loop_out_of_order_says_what():
    assert loop_status(figures(failed=2), 0.02, "", "").level == Level.ERROR
    gap = loop_status(figures(max_gap_ms=55.0), 0.02, "no SCHED_FIFO", "")
    assert gap.level == Level.WARN
    assert "55.0 ms" in gap.message
    assert "no real-time priority" in gap.message
    assert "60 of 5000 ticks missed" in loop_status(figures(missed=60), 0.02, "", "").message
    refused = loop_status(figures(), 0.02, "no SCHED_FIFO 50: set rtprio", "")
    assert (refused.level, refused.message) == (Level.WARN, "no SCHED_FIFO 50: set rtprio")


def test_what_was_never_heard_is_not_infinitely_old():
    ages = {"stream_age_s": math.inf, "heartbeat_age_s": 0.4, "joint_state_age_s": 0.01}
    status = input_status(ages, JointReader(["a"]), watchdog_settings())
    assert status.message == "silent: stream never (limit 0.04 s), heartbeat 0.4 s (limit 0.25 s)"
