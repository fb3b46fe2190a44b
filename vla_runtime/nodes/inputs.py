"""Subscriptions that are read when their reader wants them, not when a message arrives.

A control thread needs the newest message at its tick, and nothing in between: with a callback per message a 1 kHz
joint state or three HD cameras would keep the interpreter busy with messages that nobody reads. DDS receives in its
own threads and keeps the newest ``depth``; a ``PolledInput`` takes them on demand, from the thread that uses them.
"""

import time
import weakref
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

QOS_LOOK_S = 3.0
"""How often the publishers of a topic are looked at for QoS that cannot be heard."""


class _PolledGroup(CallbackGroup):
    """Keeps a subscription and its QoS events out of every executor's wait set.

    The events too: they share the subscription's status condition, which stays triggered while a message waits to be
    polled, so an executor that waited for them would come back at once, again and again, and spin.
    """

    def can_execute(self, entity) -> bool:
        return False

    def beginning_execution(self, entity) -> bool:
        return False

    def ending_execution(self, entity) -> None:
        pass


class PolledInput:
    """One topic, read on demand by one thread.

    ``report``: told by name of publishers whose QoS keeps their messages from us; None where the QoS was made to match.
    ``raw``: messages are taken as their bytes.
    """

    def __init__(
        self,
        node: Node,
        message_type: type,
        topic: str,
        qos: QoSProfile,
        report: Callable[[str], None] | None,
        *,
        raw: bool = False,
    ):
        self.group = _PolledGroup()
        self.depth = qos.depth
        self.topic = node.resolve_topic_name(topic)
        self.subscription = node.create_subscription(
            message_type,
            topic,
            _never_called,
            qos,
            callback_group=self.group,
            raw=raw,
        )
        if report is not None:
            watch_qos(node, self.topic, qos, report)
        self._polled_at = time.monotonic()

    def take(self) -> list[tuple[float, Any]]:
        """All messages since the last call, at most ``depth``, oldest first: (steady seconds of arrival, message)."""
        taken = self.take_as_received()
        now = time.monotonic()
        earliest, self._polled_at = self._polled_at, now
        if not taken:
            return []
        wall = time.time_ns()
        # A step of the system clock must not misdate an arrival: it lies between this reading and the one before.
        return [
            (min(now, max(earliest, now - (wall - _received(info, wall)) / 1e9)), message) for message, info in taken
        ]

    def take_as_received(self) -> list[tuple[Any, dict]]:
        """The same messages, each with what DDS noted of it (``received_timestamp``: system nanoseconds)."""
        taken = []
        handle = self.subscription.handle
        message_type, raw = self.subscription.msg_type, self.subscription.raw
        with handle:
            while len(taken) < self.depth:
                item = handle.take_message(message_type, raw)
                if item is None:
                    break
                taken.append(item)
        return taken

    def newest(self) -> tuple[float, Any] | None:
        """The newest message since the last call, or None."""
        taken = self.take()
        return taken[-1] if taken else None

    def publishers(self) -> int:
        """How many publishers of this topic are known."""
        return self.subscription.get_publisher_count() if hasattr(self.subscription, "get_publisher_count") else 0

    def destroy(self, node: Node) -> None:
        """Unsubscribe."""
        if node in _WATCHES:
            _WATCHES[node].forget(self.topic)
        node.destroy_subscription(self.subscription)


class _QosWatch:
    """Looks at the publishers of a node's topics now and then, all with one timer: each wake costs a millisecond."""

    def __init__(self, node: Node):
        self._node = weakref.ref(node)
        self._topics: dict[str, tuple[QoSProfile, Callable[[str], None]]] = {}
        self._reported: set[str] = set()
        node.create_timer(QOS_LOOK_S, self.look, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def add(self, topic: str, qos: QoSProfile, report: Callable[[str], None]) -> None:
        self._topics[topic] = (qos, report)

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def look(self) -> None:
        for topic, (qos, report) in list(self._topics.items()):
            for publisher in self._node().get_publishers_info_by_topic(topic):
                compatible, reason = qos_check_compatible(publisher.qos_profile, qos)
                if compatible != QoSCompatibility.ERROR:
                    continue
                reason = reason.removeprefix("ERROR: ").rstrip("; ")
                text = (
                    f"a publisher of topic '{topic}' ({publisher.node_name}) offers incompatible QoS: nothing is "
                    f"received from it ({reason}); see `ros2 topic info -v {topic}`"
                )
                if text not in self._reported:
                    self._reported.add(text)
                    report(text)


_WATCHES: "weakref.WeakKeyDictionary[Node, _QosWatch]" = weakref.WeakKeyDictionary()


def watch_qos(node: Node, topic: str, qos: QoSProfile, report: Callable[[str], None]) -> None:
    """Report publishers of ``topic`` (resolved) whose QoS keeps their messages from us, once each, by name."""
    watch = _WATCHES.get(node)
    if watch is None:
        watch = _WATCHES[node] = _QosWatch(node)
    watch.add(topic, qos, report)


def _received(info: Any, otherwise: int) -> int:
    received = info.get("received_timestamp") if isinstance(info, dict) else getattr(info, "received_timestamp", 0)
    return received or otherwise


def _never_called(_message: Any) -> None:
    """Executors need a callback; this group's are never executed."""
