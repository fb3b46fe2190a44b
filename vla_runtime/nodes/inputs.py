"""Subscriptions that are read when their reader wants them, not when a message arrives.

A control thread needs the newest message at its tick, and nothing in between: with a callback per message a 1 kHz
joint state or three HD cameras would keep the interpreter busy with messages that nobody reads. DDS receives in its
own threads and keeps the newest ``depth``; a ``PolledInput`` takes them on demand, from the thread that uses them.
"""

import time
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_policy_name_from_kind
from rclpy.subscription import Subscription

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # ROS 2 Humble
    from rclpy.qos_event import SubscriptionEventCallbacks


class _PolledGroup(CallbackGroup):
    """Keeps its subscriptions out of every executor's wait set; their QoS events are still executed."""

    def can_execute(self, entity) -> bool:
        return not isinstance(entity, Subscription)

    def beginning_execution(self, entity) -> bool:
        return True

    def ending_execution(self, entity) -> None:
        pass


def qos_events(topic: str, report: Callable[[str], None]) -> SubscriptionEventCallbacks:
    """Event callbacks that report a publisher with incompatible QoS by the topic's name."""

    def incompatible(event) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)
        report(
            f"a publisher of topic '{topic}' offers incompatible QoS ({policy}): nothing is received from it; change "
            f"its {policy.lower()} or see `ros2 topic info -v {topic}`"
        )

    return SubscriptionEventCallbacks(incompatible_qos=incompatible)


class PolledInput:
    """One topic, read on demand by one thread."""

    def __init__(
        self, node: Node, message_type: type, topic: str, qos: QoSProfile, report: Callable[[str], None], **options: Any
    ):
        self.group = _PolledGroup()
        self.depth = qos.depth
        name = node.resolve_topic_name(topic)
        self.subscription = node.create_subscription(
            message_type,
            topic,
            _never_called,
            qos,
            callback_group=self.group,
            event_callbacks=qos_events(name, report),
            **options,
        )
        self.topic = name
        self._polled_at = time.monotonic()

    def take(self) -> list[tuple[float, Any]]:
        """All messages since the last call, at most ``depth``, oldest first: (steady seconds of arrival, message)."""
        taken = []
        handle = self.subscription.handle
        message_type = self.subscription.msg_type
        with handle:
            while len(taken) < self.depth:
                item = handle.take_message(message_type, False)
                if item is None:
                    break
                taken.append(item)
        now = time.monotonic()
        earliest, self._polled_at = self._polled_at, now
        if not taken:
            return []
        wall = time.time_ns()
        # A step of the system clock must not misdate an arrival: it lies between this reading and the one before.
        return [
            (min(now, max(earliest, now - (wall - _received(info, wall)) / 1e9)), message) for message, info in taken
        ]

    def newest(self) -> tuple[float, Any] | None:
        """The newest message since the last call, or None."""
        taken = self.take()
        return taken[-1] if taken else None

    def publishers(self) -> int:
        """How many publishers of this topic are known."""
        return self.subscription.get_publisher_count() if hasattr(self.subscription, "get_publisher_count") else 0

    def destroy(self, node: Node) -> None:
        """Unsubscribe."""
        node.destroy_subscription(self.subscription)


def _received(info: Any, otherwise: int) -> int:
    received = info.get("received_timestamp") if isinstance(info, dict) else getattr(info, "received_timestamp", 0)
    return received or otherwise


def _never_called(_message: Any) -> None:
    """Executors need a callback; this group's are never executed."""
