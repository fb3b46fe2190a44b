"""The instruction is heard from every publisher, and none of them is called unheard."""

import time

import pytest
import rclpy
from std_msgs.msg import String

from vla_runtime.nodes.policy_node import PolicyNode
from vla_runtime.nodes.qos import LATCHED
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.mark.parametrize("qos", [1, LATCHED], ids=["ros2_topic_pub", "latched"])
def test_a_publisher_of_either_kind_is_heard_without_a_warning(lonely, capfd, tmp_path, qos):
    arguments = ["--ros-args", "-p", "autostart:=false", "-p", f"bundle:={write_tiny_bundle(tmp_path)}"]
    node = lonely(PolicyNode, *arguments)
    node.trigger_configure()
    publisher = node.create_publisher(String, "instruction", qos)
    end = time.monotonic() + 5.0
    while node.observer.instruction != "push the button" and time.monotonic() < end:
        publisher.publish(String(data="push the button"))
        rclpy.spin_once(node, timeout_sec=0.05)
    assert node.observer.instruction == "push the button"
    assert "New publisher discovered" not in capfd.readouterr().err
