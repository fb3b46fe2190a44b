"""How a camera's frames come over the network: at which rate they are sent, and how many are lost on the way.

Frames that the policy does not need are overwritten unread, so what is taken says nothing of either. The sequence
numbers of those that are taken say how many were sent, and DDS itself counts those that it never got whole.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from rclpy.subscription import Subscription

REMEMBERED_S = 10.0
_KEPT = 256
LOSSY_SHARE = 0.02
"""From this share of lost frames on, operators are told."""


class CameraFlow:
    """Counts one subscription's frames. ``took`` is for the thread that polls, ``figures`` for the one that reports."""

    def __init__(self, subscription: Subscription):
        self._lost_event = _lost_event(subscription)
        self._taken: deque[tuple[int, int, bytes]] = deque(maxlen=_KEPT)  # (sequence number, source ns, publisher)
        self._lost: deque[tuple[float, int]] = deque(maxlen=_KEPT)  # (steady s, total)
        self._total = 0

    def took(self, info: Mapping[str, Any]) -> None:
        """Note what DDS says of a frame that was taken."""
        number, publisher = info.get("publication_sequence_number"), info.get("publisher_gid") or {}
        if number is None:  # ROS 2 Humble does not say
            return
        entry = number, info["source_timestamp"], publisher.get("data", b"")
        if self._taken and (self._taken[-1][2] != entry[2] or number <= self._taken[-1][0]):
            self._taken.clear()  # another publisher counts anew
        self._taken.append(entry)

    def figures(self, now: float) -> dict[str, float | int | None]:
        """``rate_hz`` at which frames are sent, ``lost`` on the way in all, ``lost_share`` of the last ten seconds.

        None is what this version of ROS 2 does not tell, or what cannot be said yet.
        """
        rate = self._rate()
        lost = self._count_lost()
        if lost is None:
            return {"rate_hz": rate, "lost": None, "lost_share": None}
        self._lost.append((now, lost))
        while len(self._lost) > 2 and now - self._lost[1][0] >= REMEMBERED_S:
            self._lost.popleft()
        (since, before), span = self._lost[0], now - self._lost[0][0]
        sent = rate * span if rate else 0.0
        share = min(1.0, (lost - before) / max(sent, lost - before)) if lost > before else 0.0
        return {"rate_hz": rate, "lost": lost, "lost_share": share if now > since else 0.0}

    def _rate(self) -> float | None:
        taken = list(self._taken)
        if len(taken) < 2:
            return None
        recent = [entry for entry in taken if taken[-1][1] - entry[1] <= REMEMBERED_S * 1e9]
        first = recent[0] if len(recent) > 1 else taken[-2]
        span = (taken[-1][1] - first[1]) / 1e9
        return (taken[-1][0] - first[0]) / span if span > 0 else None

    def _count_lost(self) -> int | None:
        if self._lost_event is None:
            return None
        with self._lost_event:
            status = self._lost_event.take_event()
        if status is not None:
            self._total = status.total_count
        return self._total


def lossy(flows: Mapping[str, Mapping[str, Any]]) -> str:
    """One line for operators about the topics that lose frames, by name; "" where none does."""
    bad = [
        f"{topic} ({flow['lost_share']:.0%} of its frames)"
        for topic, flow in flows.items()
        if (flow["lost_share"] or 0.0) >= LOSSY_SHARE
    ]
    if not bad:
        return ""
    return f"frames are lost on the way: {', '.join(bad)}; see 'Pictures are lost' in docs/troubleshooting.md"


def _lost_event(subscription: Subscription) -> Any:
    """The subscription's count of lost messages, read on demand; None where rclpy or the middleware has none.

    Not by a callback: the event would wake the executor for every frame that waits to be polled (nodes/inputs.py).
    """
    try:
        from rclpy.impl.implementation_singleton import rclpy_implementation as implementation

        kind = implementation.rcl_subscription_event_type_t.RCL_SUBSCRIPTION_MESSAGE_LOST
        with subscription.handle:
            return implementation.EventHandle(subscription.handle, kind)
    except Exception:  # names and errors differ between versions of rclpy, which promises none of them
        return None
