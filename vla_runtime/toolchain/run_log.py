"""A recorded run as plain arrays: what a report, the demo's figures and a replay read from a bag.

Needs no ROS. Times are seconds of the ROS clock (float64) counted from the first message of the bag.
"""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from vla_runtime.errors import UserError
from vla_runtime.nodes.trajectory_cdr import decode
from vla_runtime.toolchain.damaged import UNREADABLE, expect_bag


@dataclass(frozen=True)
class Motion:
    """One JointTrajectory: when it arrived, the instant of its first point, and its points."""

    received: float
    stamp: float
    plan_id: str
    joint_names: tuple[str, ...]
    times: np.ndarray  # (m,) s from the stamp
    positions: np.ndarray  # (m, n) rad
    velocities: np.ndarray  # (m, n) rad/s; (m, 0) where the message has none


@dataclass(frozen=True)
class Status:
    """One DiagnosticStatus of a node."""

    received: float
    state: str
    level: int
    values: dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One JointState."""

    stamp: float
    joint_names: tuple[str, ...]
    positions: np.ndarray  # (n,) rad


@dataclass
class RunLog:
    """Everything in a bag that concerns a run, each list in the order of arrival."""

    duration: float = 0.0
    start_ns: int = 0
    commands: list[Motion] = field(default_factory=list)
    planned: list[Motion] = field(default_factory=list)
    requests: list[Motion] = field(default_factory=list)
    chunks: list[Motion] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    watchdog: list[Status] = field(default_factory=list)
    executor: list[Status] = field(default_factory=list)
    policy: list[Status] = field(default_factory=list)
    latency: list[tuple[float, dict[str, float]]] = field(default_factory=list)  # (received, ms by stage)
    robot: list[tuple[float, dict]] = field(default_factory=list)  # sim/status
    controller: list[tuple[float, dict]] = field(default_factory=list)  # sim/controller
    instruction: list[tuple[float, str]] = field(default_factory=list)
    images: dict[str, list[tuple[float, np.ndarray]]] = field(default_factory=dict)  # by topic: (stamp, rgb)


TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
MOTIONS = {"joint_trajectory": "commands", "planned_trajectory": "planned",
           "plan_request": "requests", "action_chunk": "chunks"}  # fmt: skip
STATES = {"watchdog/state": "watchdog", "executor/state": "executor", "policy/state": "policy"}
TEXTS = {"sim/status": "robot", "sim/controller": "controller"}


def read_run(bag: Path, images_every_s: float | None = 1.0) -> RunLog:
    """Read a bag; a namespace before the topics' names is allowed.

    Args:
        bag: the folder that ``vla record`` (or ``ros2 bag record -s mcap``) wrote.
        images_every_s: keep one image of each camera every so many seconds; None reads no images.

    Raises:
        UserError: there is no readable bag at the path.
    """
    expect_bag(bag)
    run = RunLog()
    try:
        with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_KILTED)) as reader:
            run.start_ns, run.duration = reader.start_time, max(reader.duration * 1e-9, 0.0)
            last_image: dict[str, float] = {}
            for connection, received_ns, raw in reader.messages():
                received = (received_ns - run.start_ns) * 1e-9
                if not _wanted(connection.topic, connection.msgtype):
                    continue
                is_motion = connection.msgtype == TRAJECTORY
                if is_motion and _take_plain_motion(run, connection.topic, received, bytes(raw)):
                    continue
                if connection.msgtype.endswith("Image"):
                    if images_every_s is None or received - last_image.get(connection.topic, -1e9) < images_every_s:
                        continue
                    last_image[connection.topic] = received
                _take(run, connection.topic, received, reader.deserialize(raw, connection.msgtype))
    except (OSError, ValueError, *UNREADABLE) as error:
        raise UserError(f"the bag '{bag}' cannot be read: {error}") from error
    return run


def _names(topic: str) -> tuple[str, str]:
    """The last two parts of a topic, and the last one."""
    parts = topic.strip("/").split("/")
    return "/".join(parts[-2:]), parts[-1]


@lru_cache(maxsize=1024)
def _wanted(topic: str, msgtype: str) -> bool:
    name, last = _names(topic)
    if msgtype == TRAJECTORY:
        return last in MOTIONS
    by_name = name in STATES or name in TEXTS or name == "policy/latency"
    return by_name or last in ("joint_states", "instruction") or msgtype.endswith("Image")


def _take_plain_motion(run: RunLog, topic: str, received: float, raw: bytes) -> bool:
    """Take a trajectory from its bytes, if it is one of the regular form: half of a bag, ten times as fast."""
    flat = decode(raw)
    if flat is None:
        return False
    stamp = (flat.stamp_ns - run.start_ns) * 1e-9
    motion = Motion(received, stamp, flat.frame_id, flat.joint_names, flat.times, flat.positions, flat.velocities)
    getattr(run, MOTIONS[_names(topic)[1]]).append(motion)
    return True


def _take(run: RunLog, topic: str, received: float, message) -> None:
    name, last = _names(topic)
    kind = type(message).__name__
    if kind.endswith("JointTrajectory") and last in MOTIONS:
        getattr(run, MOTIONS[last]).append(_motion(run, received, message))
    elif kind.endswith("DiagnosticStatus") and name in STATES:
        values = {pair.key: pair.value for pair in message.values}
        getattr(run, STATES[name]).append(Status(received, message.message, int(message.level), values))
    elif kind.endswith("JointState") and last == "joint_states":
        names, positions = tuple(message.name), np.asarray(message.position)
        run.measured.append(Measured(_seconds(run, message.header.stamp), names, positions))
    elif kind.endswith("Float64MultiArray") and name == "policy/latency":
        stages = {dim.label: float(value) for dim, value in zip(message.layout.dim, message.data)}
        run.latency.append((received, stages))
    elif kind.endswith("String") and name in TEXTS:
        getattr(run, TEXTS[name]).append((received, json.loads(message.data)))
    elif kind.endswith("String") and last == "instruction":
        run.instruction.append((received, message.data))
    elif kind.endswith("Image"):
        _take_image(run, topic, message)


def _take_image(run: RunLog, topic: str, message) -> None:
    from vla_runtime.policy import images

    if hasattr(message, "format"):
        picture = images.decode_compressed(message.format, bytes(message.data))
    else:
        picture = images.decode_image(message.height, message.width, message.encoding,
                                      bool(message.is_bigendian), message.step, bytes(message.data))  # fmt: skip
    run.images.setdefault(topic, []).append((_seconds(run, message.header.stamp), picture))


def _motion(run: RunLog, received: float, message) -> Motion:
    return Motion(
        received=received,
        stamp=_seconds(run, message.header.stamp),
        plan_id=message.header.frame_id,
        joint_names=tuple(message.joint_names),
        times=np.array([p.time_from_start.sec + p.time_from_start.nanosec * 1e-9 for p in message.points]),
        positions=np.array([p.positions for p in message.points]),
        velocities=np.array([p.velocities for p in message.points]),
    )


def _seconds(run: RunLog, stamp) -> float:
    return (stamp.sec * 1_000_000_000 + stamp.nanosec - run.start_ns) * 1e-9
