"""JointTrajectories to and from their bytes, without one Python object per point.

rclpy builds and takes apart a message of 25 points in 0.7 ms; 50 times a second, in two processes, that is the greatest
part of what control costs. The bytes are OMG's CDR (little endian, XCDR1), which every RMW of ROS 2 gives and takes as
the serialised form. Only the regular case is handled here: all points alike, positions with or without velocities,
nothing else; ``decode`` returns None for any other, and the caller lets rclpy read it.

In CDR every number is aligned to its own size. A point with n positions and n velocities has 32 + 16 n bytes when it
begins on a multiple of 8, which then all but the first one do; the first may begin 4 later and lacks one filler. One
without velocities has 24 + 8 n bytes when it begins between two multiples of 8, as all but the first one do.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vla_runtime.nodes.cdr import LITTLE_ENDIAN, align, aligned, body_of, get_header, get_names, put_text
from vla_runtime.nodes.clock import NANO

_MOST_POINTS = 100_000


@dataclass(frozen=True, eq=False)
class FlatTrajectory:
    """A JointTrajectory as arrays, in the sender's order of joints.

    times (m,) s, positions (m, n), velocities (m, n), or (m, 0) where the message has none.
    """

    stamp_ns: int
    frame_id: str
    joint_names: tuple[str, ...]
    times: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray


@lru_cache(maxsize=16)
def _point(joints: int, moving: bool = True) -> np.dtype:
    if not moving:
        return np.dtype(
            [
                ("positions_count", "<u4"), ("positions", "<f8", (joints,)), ("velocities_count", "<u4"),
                ("accelerations_count", "<u4"), ("effort_count", "<u4"), ("sec", "<i4"), ("nanosec", "<u4"),
            ]
        )  # fmt: skip
    return np.dtype(
        [
            ("positions_count", "<u4"), ("filler", "<u4"), ("positions", "<f8", (joints,)),
            ("velocities_count", "<u4"), ("filler2", "<u4"), ("velocities", "<f8", (joints,)),
            ("accelerations_count", "<u4"), ("effort_count", "<u4"), ("sec", "<i4"), ("nanosec", "<u4"),
        ]
    )  # fmt: skip


class TrajectoryEncoder:
    """Writes trajectories of one set of joints."""

    def __init__(self, joint_names: Sequence[str]):
        self._point = _point(len(joint_names))
        self._joints = len(joint_names)
        self._names = list(joint_names)
        self._said = ""
        self._head = self._head_of("")  # frame_id and names, of the frame_id that was said last

    def encode(
        self, stamp_ns: int, frame_id: str, times: np.ndarray, positions: np.ndarray, velocities: np.ndarray
    ) -> bytes:
        """The serialised JointTrajectory. times (m,) s; positions, velocities (m, n); ``stamp_ns`` in ROS time."""
        if frame_id != self._said:
            self._said, self._head = frame_id, self._head_of(frame_id)
        head = struct.pack("<iI", *divmod(stamp_ns, NANO)) + self._head + struct.pack("<I", len(times))
        points = np.zeros(len(times), self._point)
        points["positions_count"] = points["velocities_count"] = self._joints
        points["positions"], points["velocities"] = positions, velocities
        nanoseconds = np.rint(np.asarray(times) * NANO).astype(np.int64)
        points["sec"], points["nanosec"] = np.divmod(nanoseconds, NANO)
        body = points.tobytes()
        if len(head) % 8 and self._joints:  # the first count ends where the positions must begin
            body = body[:4] + body[8:]
        return LITTLE_ENDIAN + head + body

    def _head_of(self, frame_id: str) -> bytes:
        head = bytearray(8)  # the stamp
        put_text(head, frame_id)
        align(head, 4)
        head += struct.pack("<I", self._joints)
        for name in self._names:
            align(head, 4)
            put_text(head, name)
        align(head, 4)
        return bytes(head[8:])


def decode(data: bytes) -> FlatTrajectory | None:
    """Read a serialised JointTrajectory; None unless it is little endian and all its points are alike and plain."""
    try:
        return _decode(body_of(data))
    except (struct.error, ValueError, UnicodeDecodeError):
        return None  # cut short, or not what it says: rclpy will say so


def _decode(body: memoryview) -> FlatTrajectory | None:
    stamp_ns, frame_id, at = get_header(body)
    names, at = get_names(body, at)
    joints = len(names)
    at = aligned(at, 4)
    (count,) = struct.unpack_from("<I", body, at)
    at += 4
    if not joints or not 0 < count <= _MOST_POINTS:
        return None
    (speeds,) = struct.unpack_from("<I", body, aligned(at + 4, 8) + 8 * joints)
    if speeds not in (0, joints):
        return None
    kind = _point(joints, speeds > 0)
    # With velocities a filler belongs to every point, and may be missing in the first; without, the other way round.
    missing = 4 if speeds and at % 8 else 0
    surplus = 4 if not speeds and at % 8 == 0 else 0
    size = count * kind.itemsize - missing + surplus
    if len(body) < at + size:
        return None
    content = bytes(body[at : at + size])
    if missing or surplus:
        content = content[:4] + b"\x00" * missing + content[4 + surplus :]
    points = np.frombuffer(content, kind)
    alike = (
        (points["positions_count"] == joints).all()
        and (points["velocities_count"] == speeds).all()
        and not points["accelerations_count"].any()
        and not points["effort_count"].any()
    )
    if not alike:
        return None
    times = points["sec"] + points["nanosec"] / NANO
    velocities = points["velocities"] if speeds else np.zeros((count, 0))
    return FlatTrajectory(stamp_ns, frame_id, names, times, points["positions"], velocities)
