"""Notices a second publisher on topics that must have one."""

import time
from collections.abc import Collection, Mapping, Sequence

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.diagnostics import Level, Status
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.lifecycle import TransitionRefusedError

DISCOVERY_S = 0.4
"""How long a new subscription needs to be known to the publishers there are, on one host or a quiet network."""
LISTEN_S = 0.3
"""A stream that is slower than this is not heard before activation; it is still counted afterwards."""
GIVE_WAY_S = 5.0
"""How long after its first command a node still listens: participants of Fast DDS announce themselves every 3 s."""
UNKNOWN_NODE = "_NODE_NAME_UNKNOWN_"
"""What ROS calls a node of which DDS has told the publisher, but not the name yet."""
NAMELESS = "a node whose name is not known yet"
REMEMBERED = 64
"""Messages of one's own that are known again: more than arrive between two looks."""


class PublisherWatch:
    """Watches one command topic for other publishers than this node."""

    def __init__(self, node: LifecycleNode, topic: str):
        self._node = node
        self.topic = node.resolve_topic_name(topic)
        self._reported = 0

    def count(self) -> int:
        """How many publishers there are, this node's among them."""
        return self._node.count_publishers(self.topic)

    def status(self) -> Status:
        """How many publishers there are; an error from the second on."""
        count = self.count()
        values = {"topic": self.topic, "publishers": count}
        text = f"{count} publishers on topic '{self.topic}': {self.names()}" if count > 1 else ""
        if count > 1 and count != self._reported:
            self._node.get_logger().error(f"{text}; only the watchdog may command the arm")
        self._reported = count
        if count > 1:
            return Status("command topic", Level.ERROR, text, values)
        return Status("command topic", Level.OK, f"the only publisher on '{self.topic}'", values)

    def names(self) -> str:
        """The nodes that publish on the topic."""
        return _listed(self._publishers())

    def refusal(self, *, retry: bool = True) -> TransitionRefusedError:
        """The reason not to command as well."""
        names, own = self._publishers(), self._node.get_fully_qualified_name()
        if own in names:
            names.remove(own)  # once: a namesake is another one
        return TransitionRefusedError(
            f"another publisher sends on topic '{self.topic}' ({_listed(names, own)}): two would fight over the arm; "
            "stop it, or give one of the two a namespace or a ROS_DOMAIN_ID of its own",
            retry=retry,
        )

    def _publishers(self) -> list[str]:
        infos = self._node.get_publishers_info_by_topic(self.topic)
        return [
            NAMELESS if info.node_name == UNKNOWN_NODE else f"{info.node_namespace.rstrip('/')}/{info.node_name}"
            for info in infos
        ]


def _listed(names: Sequence[str], own: str = "") -> str:
    named = [name for name in (own, *names) if name != NAMELESS]
    twice = len(set(named)) < len(named)
    note = "; one of the same name may be a predecessor that was killed, it counts for up to 20 s" if twice else ""
    return (", ".join(sorted(names)) or NAMELESS) + note


def senders_status(node: LifecycleNode, expected: Mapping[str, int]) -> Status:
    """Who sends on topics (resolved), each with the number of senders that it has; more are a warning.

    A second stack, a bag that is played, a leader arm whose joints have the follower's names.
    """
    counts = {topic: node.count_publishers(topic) for topic in expected}
    crowds = [
        f"{count} publishers on topic '{topic}', {expected[topic]} expected: {PublisherWatch(node, topic).names()}"
        for topic, count in counts.items()
        if count > expected[topic]
    ]
    if crowds:
        return Status("senders", Level.WARN, "; ".join(crowds), counts)
    return Status("senders", Level.OK, "as many as expected on each topic", counts)


class Ears:
    """Hear what others send on command topics.

    Publishers that only exist do not count here: one that was killed is in the graph for up to 20 s more. Not for long
    after the node itself has begun to send: they hear its own messages too, 50 a second. ``said``: those.
    """

    def __init__(self, node: LifecycleNode, watches: Sequence[PublisherWatch], said: Collection[bytes]):
        self._node = node
        self._said = said
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._ears = [
            (watch, PolledInput(node, JointTrajectory, watch.topic, qos, None, raw=True)) for watch in watches
        ]

    def heard(self) -> PublisherWatch | None:
        """A topic on which somebody else sent something since the last call, or None."""
        news = [(watch, data) for watch, ear in self._ears for _, data in ear.take()]
        return next((watch for watch, data in news if data not in self._said), None)

    def close(self) -> None:
        """Unsubscribe."""
        for _, ear in self._ears:
            ear.destroy(self._node)
        self._ears = []


def listen_for_another(node: LifecycleNode, watches: Sequence[PublisherWatch], said: Collection[bytes]) -> Ears:
    """Listen on all topics for a moment; the ears stay open. Raises TransitionRefusedError when somebody publishes."""
    ears = Ears(node, watches, said)
    time.sleep(DISCOVERY_S)
    ears.heard()
    time.sleep(LISTEN_S)
    rival = ears.heard()
    if rival is not None:
        ears.close()
        raise rival.refusal()
    return ears
