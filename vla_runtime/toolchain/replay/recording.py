"""The inputs of a recorded run: joint states, the answers or the actions, pictures. Needs no ROS.

Times are seconds of the ROS clock, counted from the bag's first message.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from vla_runtime.control.limits import Limits, LimitsError
from vla_runtime.errors import UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.damaged import UNREADABLE, expect_bag
from vla_runtime.toolchain.replay.bagmap import BagMap

MARGIN = 0.1
SPEED_MARGIN, SLOWEST = 2.0, 0.5
RAMP_S = 0.05
"""Limits taken from a recording: the positions seen and 0.1 (rad) more, twice the speeds seen (at least 0.5 rad/s),
that speed within 0.1 s, that acceleration within 50 ms. They keep a replay honest; they are none for a robot."""


@dataclass(frozen=True)
class Series:
    """One stream of joint values: times (m,) s, rows (m, n), and the names of the n columns."""

    names: tuple[str, ...]
    times: np.ndarray
    rows: np.ndarray

    def at(self, t: np.ndarray | float) -> np.ndarray:
        """Values at ``t``, interpolated, held at both ends: (..., n)."""
        columns = [np.interp(t, self.times, self.rows[:, i]) for i in range(len(self.names))]
        return np.stack(columns, axis=-1)

    def pick(self, names: tuple[str, ...]) -> "Series":
        """The columns of these names. Raises UserError naming what is missing."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise UserError(f"the bag has no joint {', '.join(missing)}; it has: {', '.join(self.names)}")
        return Series(names, self.times, self.rows[:, [self.names.index(name) for name in names]])


@dataclass
class Frames:
    """The pictures of one camera: stamps (s), and a decoder for each ((h, w, 3) uint8 RGB)."""

    times: list[float] = field(default_factory=list)
    decode: list[Callable[[], np.ndarray]] = field(default_factory=list)

    def latest(self, t: float) -> int | None:
        """Index of the newest picture that was there at ``t``, or None."""
        i = int(np.searchsorted(self.times, t, side="right")) - 1
        return i if i >= 0 else None


@dataclass
class Recording:
    """What was read."""

    joints: Series
    actions: Series | None
    frames: dict[str, Frames]
    instruction: list[tuple[float, str]]
    duration: float
    start_ns: int


def read_recording(bag: Path, mapping: BagMap) -> Recording:
    """Read a bag by its mapping. Raises UserError naming the topic that is missing and those that are there."""
    expect_bag(bag)
    wanted = [mapping.joint_states, mapping.actions, mapping.instruction, *mapping.cameras.values()]
    heard: dict[str, list] = {topic: [] for topic in wanted if topic}
    try:
        with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_KILTED)) as reader:
            there = {connection.topic for connection in reader.connections}
            needed = [topic for topic in heard if topic != mapping.instruction]
            missing = [topic for topic in needed if topic not in there]
            if missing:
                raise UserError(f"'{bag}' has no topic {', '.join(missing)}; it has: {', '.join(sorted(there))}")
            connections = [c for c in reader.connections if c.topic in heard]
            for connection, received_ns, raw in reader.messages(connections=connections):
                heard[connection.topic].append((received_ns, reader.deserialize(raw, connection.msgtype)))
            start_ns, duration = reader.start_time, reader.duration * 1e-9
    except (OSError, ValueError, *UNREADABLE) as error:
        raise UserError(f"the bag '{bag}' cannot be read: {error}") from error

    def seconds(received_ns: int, message) -> float:
        stamp = getattr(getattr(message, "header", None), "stamp", None)
        ns = stamp.sec * 1_000_000_000 + stamp.nanosec if stamp is not None else 0
        return ((ns or received_ns) - start_ns) * 1e-9

    actions = None
    if mapping.actions:
        names = mapping.action_joints or mapping.joints
        actions = _series(mapping.actions, heard[mapping.actions], names, seconds)
    return Recording(
        joints=_series(mapping.joint_states, heard[mapping.joint_states], mapping.joints, seconds),
        actions=actions,
        frames={name: _frames(heard[topic], seconds) for name, topic in mapping.cameras.items()},
        instruction=[((ns - start_ns) * 1e-9, message.data) for ns, message in heard.get(mapping.instruction, [])],
        duration=duration,
        start_ns=start_ns,
    )


def _series(topic: str, messages: list, names: dict[str, str], seconds: Callable) -> Series:
    if not messages:
        raise UserError(f"topic {topic} is empty")
    first = [str(name) for name in messages[0][1].name]
    bags = list(names) or first
    missing = [name for name in bags if name not in first]
    if missing:
        raise UserError(f"topic {topic} has no joint {', '.join(missing)}; it has: {', '.join(first)}")
    times, rows = [], []
    for received_ns, message in messages:
        place = {str(name): i for i, name in enumerate(message.name)}
        if all(name in place for name in bags):
            times.append(seconds(received_ns, message))
            rows.append([message.position[place[name]] for name in bags])
    order = np.argsort(times, kind="stable")
    return Series(tuple(names.get(name, name) for name in bags), np.array(times)[order], np.array(rows, float)[order])


def _frames(messages: list, seconds: Callable) -> Frames:
    from vla_runtime.policy.images import decode_compressed, decode_image

    frames = Frames()
    for received_ns, message in sorted(messages, key=lambda item: seconds(*item)):
        frames.times.append(seconds(received_ns, message))
        if hasattr(message, "format"):
            frames.decode.append(lambda m=message: decode_compressed(m.format, bytes(m.data)))
        else:
            frames.decode.append(
                lambda m=message: decode_image(
                    m.height, m.width, m.encoding, bool(m.is_bigendian), m.step, bytes(m.data)
                )
            )
    return frames


def limits_for(recording: Recording, mapping: BagMap) -> Limits:
    """Limits from the robot file, or from the recording itself. Raises UserError."""
    if mapping.robot:
        path = Path(mapping.robot).expanduser()
        path = path if path.is_file() else share("config", "robots", f"{mapping.robot}.yaml")
        try:
            return Limits.from_yaml(path, mapping.discrete)
        except LimitsError as error:
            raise UserError(f"robot: {error}") from error
    series = [recording.joints] + ([recording.actions] if recording.actions is not None else [])
    lower, upper = (np.array([bound(s.rows, axis=0) for s in series]) for bound in (np.min, np.max))
    speed = np.array([_speed(s) for s in series])
    velocity = np.maximum(SPEED_MARGIN * speed.max(axis=0), SLOWEST)
    names = recording.joints.names
    return Limits(
        names,
        lower.min(axis=0) - MARGIN,
        upper.max(axis=0) + MARGIN,
        velocity,
        velocity / 0.1,
        velocity / 0.1 / RAMP_S,
        np.array([name in mapping.discrete for name in names]),
    )


def _speed(series: Series) -> np.ndarray:
    steps = np.maximum(np.diff(series.times), 1e-3)[:, None]
    return (np.abs(np.diff(series.rows, axis=0)) / steps).max(axis=0)
