"""The quality of service of every topic, in one place (docs/architecture.md, Topics).

A subscription here never asks for a deadline or for liveliness: a publisher that does not offer it would not be heard
at all. Nor do our own streams offer a deadline: each message of such a stream restarts a timer in DDS, at both ends.
"""

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

LATEST = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
"""Only the newest matters. What trajectory controllers ask of a stream of commands."""

STREAM = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""How our own streams of trajectories are read: the next is there before a lost one could be sent again. Heard from
every publisher. To acknowledge each message wakes two threads of DDS in both processes, 2 % of a core at 50 Hz."""

EVENTS = QoSProfile(depth=10, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
"""Each one counts: requests, answers, heartbeats."""

LATCHED = QoSProfile(
    depth=1,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""A state that late comers must know: states of nodes, the instruction."""

LATCHED_MANY = QoSProfile(
    depth=10,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""How such states are read where several nodes speak on one topic: none may push out what another said."""

JOINT_STATES = QoSProfile(depth=5, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Heard from every publisher, reliable or not; deep enough for joints that come in parts (arm and gripper drivers)."""

CAMERA = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Heard from every publisher; an old frame is worth nothing."""

TRACE = QoSProfile(
    depth=200,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Each one counts, the first most of all: a recorder that comes within twenty seconds of the start has them all.

Of the pieces of 16 kB in which the control nodes send, these are 20 s of an arm that moves, 3 MB.
"""


def no_warnings() -> SubscriptionEventCallbacks:
    """Return what keeps rclpy from warning of publishers that a subscription cannot hear: another one hears them."""
    return SubscriptionEventCallbacks(use_default_callbacks=False)
