"""Statuses by REP-107."""

import math

import pytest
from rclpy.lifecycle import LifecycleNode
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.nodes.diagnostics import Level, Status, flat, loop_status, text
from vla_runtime.nodes.executor_report import plan_status
from vla_runtime.nodes.joint_map import JointReader
from vla_runtime.nodes.loop import LoopFigures
from vla_runtime.nodes.publishers import senders_status
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


def test_an_executor_with_another_control_period_is_a_warning_even_while_it_is_heard():
    told = "planned every 0.03 s, but the watchdog's period_s is 0.02 s"
    status = input_status({"other_rhythm": told, "stream_age_s": 0.01}, JointReader(["a"]), watchdog_settings())
    assert (status.level, status.message) == (Level.WARN, told)
    status = input_status({"other_rhythm": told, "stream_age_s": 0.05}, JointReader(["a"]), watchdog_settings())
    assert status.message == f"{told}; silent: stream 0.05 s (limit 0.04 s)"


@pytest.mark.parametrize(
    ("stamps", "said"),
    [
        ((9.99, 10.01), ""),
        ((10.05, 10.07), ""),  # hosts differ a little
        ((0.0, 0.0), "stamped 10.020 s before they arrive (limit 0.1 s)"),  # a driver that sets none
        ((9.5, 9.5), "stamped 0.520 s before they arrive"),  # or repeats itself: the age alone says that none come
        ((70.0, 70.02), "stamped 60.000 s after they arrive"),
    ],
)
def test_joint_states_that_come_with_odd_stamps_are_told_from_those_that_do_not_come(stamps, said):
    reader = JointReader(["a"])
    for arrival, stamp in zip((10.0, 10.02), stamps):
        data = serialize_message(JointState(name=["a"], position=[0.0]))
        reader.read_newest([data], lambda _ns, t=stamp: t, arrival)
    status = input_status({"joint_state_age_s": 0.05}, reader, watchdog_settings())
    assert said in status.message
    assert status.level == (Level.ERROR if said else Level.OK)


def test_a_second_sender_on_a_topic_that_has_one_is_named(lonely):
    node = lonely(lambda: LifecycleNode("late"))
    topics = [node.resolve_topic_name(name) for name in ("plan_request", "heartbeat")]
    assert senders_status(node, dict.fromkeys(topics, 1)).level == Level.OK
    for name in ("plan_request", "heartbeat", "plan_request"):
        node.create_publisher(Header, name, 1)
    status = senders_status(node, dict.fromkeys(topics, 1))
    assert status.level == Level.WARN
    assert status.message.startswith("2 publishers on topic '/plan_request', 1 expected: /late, /late")
    assert "heartbeat" not in status.message
    assert status.values == {"/plan_request": 2, "/heartbeat": 1}


def test_an_executor_without_joint_states_says_what_is_wrong_with_them():
    """Its robot file may name a joint that the watchdog's does not."""
    reader = JointReader(["a", "extra"])
    reader.read(JointState(name=["a"], position=[0.0]), 1.0)
    assert plan_status({"silent": "joint_state"}, reader.fault).message == (
        "nothing to say: joint_state (joint states lack extra)"
    )
    assert plan_status({"silent": "no_plan"}, "").message == "nothing to say: no_plan"
