"""Notices a second publisher on a topic that must have one."""

import time

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.diagnostics import Level, Status
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.lifecycle import TransitionRefusedError

DISCOVERY_S = 0.7
"""How long a new participant needs to have heard of the others, on one host or a quiet network."""
LISTEN_S = 0.3
"""A stream that is slower than this is not heard before activation; it is still counted afterwards."""


class PublisherWatch:
    """Watches one command topic for other publishers than this node."""

    def __init__(self, node: LifecycleNode, topic: str):
        self._node = node
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._input = PolledInput(node, JointTrajectory, topic, qos, lambda text: None)
        self.topic = self._input.topic
        self._ready_at = time.monotonic() + DISCOVERY_S
        self._reported = 0

    def refuse_while_another_publishes(self) -> None:
        """Listen for a moment, this node being silent. Raises TransitionRefusedError when somebody publishes.

        Publishers that only exist do not count here: one that was killed is in the graph for up to 20 s more.
        """
        time.sleep(max(0.0, self._ready_at - LISTEN_S - time.monotonic()))
        self._input.take()
        time.sleep(LISTEN_S)
        if self._input.newest() is not None:
            raise TransitionRefusedError(
                f"another publisher sends on topic '{self.topic}' ({self._names()}): two would fight over the arm; "
                "stop it, or give one of the two a namespace or a ROS_DOMAIN_ID of its own",
                retry=True,
            )

    def status(self) -> Status:
        """How many publishers there are; an error from the second on."""
        count = self._node.count_publishers(self.topic)
        values = {"topic": self.topic, "publishers": count}
        text = f"{count} publishers on topic '{self.topic}': {self._names()}" if count > 1 else ""
        if count > 1 and count != self._reported:
            self._node.get_logger().error(f"{text}; only the watchdog may command the arm")
        self._reported = count
        if count > 1:
            return Status("command topic", Level.ERROR, text, values)
        return Status("command topic", Level.OK, f"the only publisher on '{self.topic}'", values)

    def destroy(self) -> None:
        """Stop watching."""
        self._input.destroy(self._node)

    def _names(self) -> str:
        infos = self._node.get_publishers_info_by_topic(self.topic)
        names = sorted(f"{info.node_namespace.rstrip('/')}/{info.node_name}" for info in infos)
        twice = len(set(names)) < len(names)
        note = "; one of the same name may be a predecessor that was killed, it counts for up to 20 s" if twice else ""
        return ", ".join(names) + note
