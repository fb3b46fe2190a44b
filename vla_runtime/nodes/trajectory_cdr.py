"""JointTrajectories to and from their bytes, without one Python object per point.

rclpy builds and takes apart a message of 25 points in 0.7 ms; 50 times a second, in two processes, that is the greatest
part of what control costs. The bytes are OMG's CDR (little endian, XCDR1), which every RMW of ROS 2 gives and takes as
the serialised form. Only the regular case is handled here: all points alike, positions and velocities, nothing else;
``decode`` returns None for any other, and the caller lets rclpy read it.

In CDR every number is aligned to its own size. A point with n positions and n velocities has 32 + 16 n bytes when it
begins on a multiple of 8, which then all but the first one do; the first may begin 4 later and lacks one filler.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NANO = 1_000_000_000
_LITTLE_ENDIAN = b"\x00\x01\x00\x00"
_ENCAPSULATION = len(_LITTLE_ENDIAN)
_MOST_JOINTS = 1000
_MOST_POINTS = 100_000


@dataclass(frozen=True, eq=False)
class FlatTrajectory:
    """A JointTrajectory as arrays: times (m,) s, positions and velocities (m, n), in the sender's order of joints."""

    stamp_ns: int
    frame_id: str
    joint_names: tuple[str, ...]
    times: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray


def _point(joints: int) -> np.dtype:
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

    def encode(
        self, stamp_ns: int, frame_id: str, times: np.ndarray, positions: np.ndarray, velocities: np.ndarray
    ) -> bytes:
        """The serialised JointTrajectory. times (m,) s; positions, velocities (m, n); ``stamp_ns`` in ROS time."""
        head = bytearray(struct.pack("<iI", *divmod(stamp_ns, _NANO)))
        _put_text(head, frame_id)
        _align(head, 4)
        head += struct.pack("<I", self._joints)
        for name in self._names:
            _align(head, 4)
            _put_text(head, name)
        _align(head, 4)
        head += struct.pack("<I", len(times))
        points = np.zeros(len(times), self._point)
        points["positions_count"] = points["velocities_count"] = self._joints
        points["positions"], points["velocities"] = positions, velocities
        nanoseconds = np.rint(np.asarray(times) * _NANO).astype(np.int64)
        points["sec"], points["nanosec"] = np.divmod(nanoseconds, _NANO)
        body = points.tobytes()
        if len(head) % 8 and self._joints:  # the first count ends where the positions must begin
            body = body[:4] + body[8:]
        return _LITTLE_ENDIAN + bytes(head) + body


def decode(data: bytes) -> FlatTrajectory | None:
    """Read a serialised JointTrajectory; None unless it is little endian and all its points are alike and plain."""
    try:
        return _decode(memoryview(data))
    except (struct.error, ValueError, UnicodeDecodeError):
        return None  # cut short, or not what it says: rclpy will say so


def _decode(data: memoryview) -> FlatTrajectory | None:
    if bytes(data[:2]) != _LITTLE_ENDIAN[:2]:
        return None
    body = data[_ENCAPSULATION:]
    sec, nanosec = struct.unpack_from("<iI", body, 0)
    frame_id, at = _get_text(body, 8)
    at = _aligned(at, 4)
    (joints,) = struct.unpack_from("<I", body, at)
    at += 4
    if not 0 < joints <= _MOST_JOINTS:
        return None
    names = []
    for _ in range(joints):
        name, at = _get_text(body, _aligned(at, 4))
        names.append(name)
    at = _aligned(at, 4)
    (count,) = struct.unpack_from("<I", body, at)
    at += 4
    if not 0 < count <= _MOST_POINTS:
        return None
    kind = _point(joints)
    filler = at % 8  # 4 where the first point begins between two multiples of 8
    size = count * kind.itemsize - filler
    if len(body) < at + size:
        return None
    content = bytes(body[at : at + size])
    if filler:
        content = content[:4] + b"\x00" * 4 + content[4:]
    points = np.frombuffer(content, kind)
    alike = (
        (points["positions_count"] == joints).all()
        and (points["velocities_count"] == joints).all()
        and not points["accelerations_count"].any()
        and not points["effort_count"].any()
    )
    if not alike:
        return None
    times = points["sec"] + points["nanosec"] / _NANO
    return FlatTrajectory(
        sec * _NANO + nanosec, frame_id, tuple(names), times, points["positions"], points["velocities"]
    )  # fmt: skip


def _put_text(into: bytearray, text: str) -> None:
    encoded = text.encode() + b"\x00"
    into += struct.pack("<I", len(encoded)) + encoded


def _get_text(data: memoryview, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", data, at)
    end = at + 4 + length
    if length == 0 or end > len(data):
        raise ValueError("a text that is longer than the message")
    return bytes(data[at + 4 : end - 1]).decode(), end


def _aligned(at: int, size: int) -> int:
    return (at + size - 1) // size * size


def _align(data: bytearray, size: int) -> None:
    data += b"\x00" * (_aligned(len(data), size) - len(data))
