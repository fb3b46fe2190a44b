"""The quality of service of every topic, in one place (docs/architecture.md, Topics).

A subscription here never asks for a deadline or for liveliness: a publisher that does not offer it would not be heard
at all. Our own streams offer both, for those who ask.
"""

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

LATEST = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
"""Only the newest matters: streams of trajectories."""

EVENTS = QoSProfile(depth=10, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
"""Each one counts: requests, answers, heartbeats."""

LATCHED = QoSProfile(
    depth=1,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""A state that late comers must know: states of nodes, the instruction."""

JOINT_STATES = QoSProfile(depth=5, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Heard from every publisher, reliable or not; deep enough for joints that come in parts (arm and gripper drivers)."""

CAMERA = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Heard from every publisher; an old frame is worth nothing."""

TRACE = QoSProfile(
    depth=100,
    history=HistoryPolicy.KEEP_LAST,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
"""Each one counts, the first most of all: a recorder that comes within twenty seconds of the start has them all."""


def offered_stream(period_s: float) -> QoSProfile:
    """For a stream that we publish once per period: offers a deadline of two periods to those who ask for one."""
    return QoSProfile(
        depth=1,
        history=HistoryPolicy.KEEP_LAST,
        reliability=ReliabilityPolicy.RELIABLE,
        deadline=Duration(nanoseconds=round(2e9 * period_s)),
    )
