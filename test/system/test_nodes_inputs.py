"""Inputs that are polled, over real DDS."""

import time

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import String

from vla_runtime.nodes.inputs import PolledInput


@pytest.fixture
def reader(ros_domain):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=ros_domain)
    node = rclpy.create_node("reader", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    node.spin = lambda: executor.spin_once(timeout_sec=0.1)
    yield node
    executor.shutdown()
    node.destroy_node()
    context.try_shutdown()


def test_the_newest_messages_are_kept_and_taken_once(reader, ros):
    source = PolledInput(reader, String, "words", QoSProfile(depth=3), pytest.fail)
    words = ros.publisher(String, "words", 10)
    before = time.monotonic()
    for i in range(6):
        words.publish(String(data=str(i)))
    time.sleep(0.3)
    taken = source.take()
    assert [message.data for _, message in taken] == ["3", "4", "5"]
    assert all(before - 0.1 <= at <= before + 0.3 for at, _ in taken)
    assert source.take() == []
    assert source.newest() is None
    words.publish(String(data="last"))
    time.sleep(0.2)
    assert source.newest()[1].data == "last"


def test_unread_messages_do_not_keep_the_executor_busy(reader, ros):
    PolledInput(reader, String, "words", QoSProfile(depth=1), pytest.fail)
    ros.publisher(String, "words", 10).publish(String(data="unread"))
    time.sleep(0.2)
    turns, end = 0, time.monotonic() + 1.0
    while time.monotonic() < end:
        reader.spin()
        turns += 1
    assert turns < 50


def test_a_publisher_that_cannot_be_heard_is_reported_once_by_topic(reader, ros):
    reports = []
    PolledInput(reader, String, "words", QoSProfile(depth=1), reports.append)
    ros.publisher(String, "words", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT), wait_s=0.0)
    end = time.monotonic() + 10.0
    while not reports and time.monotonic() < end:
        reader.spin()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        reader.spin()
    assert len(reports) == 1
    assert "topic '/words' (probe)" in reports[0]
    assert "incompatible QoS" in reports[0]
