"""A ROS context without a network, for tests of one node alone."""

import pytest


@pytest.fixture
def lonely(monkeypatch):
    """A function that makes nodes which discover nobody: `lonely(make, "--ros-args", "-p", "k:=3")`."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")
    import rclpy

    nodes = []

    def make(factory, *args: str):
        if not rclpy.ok():
            rclpy.init(args=list(args), signal_handler_options=rclpy.SignalHandlerOptions.NO)
        node = factory()
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.try_shutdown()
