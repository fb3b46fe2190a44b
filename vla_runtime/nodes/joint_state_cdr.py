"""JointStates from their bytes: 1 kHz of them must not cost what rclpy needs to make objects of them."""

import struct
from dataclasses import dataclass

import numpy as np
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState

from vla_runtime.errors import UserError
from vla_runtime.nodes.cdr import LITTLE_ENDIAN, aligned, body_of, get_header, get_names
from vla_runtime.nodes.clock import NANO

_STAMP, _STAMP_AT = struct.Struct("<iI"), len(LITTLE_ENDIAN)
_COUNT = struct.Struct("<I")
_UNREADABLE = (struct.error, ValueError, UnicodeDecodeError)  # by us: not the plain form, or cut short


class UnreadableError(UserError):
    """Bytes that are no JointState: cut short, or of another definition of the message."""


@dataclass(frozen=True, eq=False)
class FlatJointState:
    """A JointState as arrays: names, and position, velocity, effort as they came (each may be empty)."""

    stamp_ns: int
    names: tuple[str, ...]
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


class JointStateDecoder:
    """Reads serialised JointStates; those that are laid out as the one before it reads at known places."""

    def __init__(self) -> None:
        self._length = 0
        self._middle = slice(0, 0)  # frame_id, names, and how many positions
        self._expected = b""
        self._velocity = self._effort = 0  # where their counts stand
        self._like: FlatJointState | None = None

    def read(self, data: bytes) -> FlatJointState:
        """Read one message; what is not little-endian CDR is left to rclpy. Raises UnreadableError."""
        like = self._like
        if like is None or len(data) != self._length or data[self._middle] != self._expected:
            return self._learn(data)
        counts = _COUNT.unpack_from(data, self._velocity)[0], _COUNT.unpack_from(data, self._effort)[0]
        if counts != (len(like.velocity), len(like.effort)):
            return self._learn(data)
        sec, nanosec = _STAMP.unpack_from(data, _STAMP_AT)
        fields = (
            np.frombuffer(data, "<f8", len(values), _numbers_at(at)) if len(values) else values
            for values, at in ((like.position, self._middle.stop - 4), (like.velocity, self._velocity),
                               (like.effort, self._effort))
        )  # fmt: skip
        return FlatJointState(sec * NANO + nanosec, like.names, *fields)

    def _learn(self, data: bytes) -> FlatJointState:
        self._like = None
        flat = read_joint_state(data)
        try:
            body = body_of(data)
            _, at = get_names(body, get_header(body)[2])
        except _UNREADABLE:
            return flat  # rclpy has read it, and will read the next one like it
        position = len(LITTLE_ENDIAN) + aligned(at, 4)
        self._velocity = _after(position, len(flat.position))
        self._effort = _after(self._velocity, len(flat.velocity))
        self._middle = slice(_STAMP_AT + _STAMP.size, position + 4)
        self._expected, self._length, self._like = data[self._middle], len(data), flat
        return flat


def _numbers_at(count_at: int) -> int:
    """Where doubles begin whose count stands there; both counted from the beginning of the message."""
    return len(LITTLE_ENDIAN) + aligned(count_at + 4 - len(LITTLE_ENDIAN), 8)


def _after(count_at: int, count: int) -> int:
    """Where the next count stands."""
    return _numbers_at(count_at) + 8 * count if count else count_at + 4


def read_joint_state(data: bytes) -> FlatJointState:
    """Read a serialised JointState; what is not little-endian CDR is left to rclpy. Raises UnreadableError."""
    try:
        body = body_of(data)
        stamp_ns, _, at = get_header(body)
        names, at = get_names(body, at)
        position, at = _numbers(body, at)
        velocity, at = _numbers(body, at)
        effort, at = _numbers(body, at)
    except _UNREADABLE:
        return from_message(_by_rclpy(data))
    return FlatJointState(stamp_ns, names, position, velocity, effort)


def _by_rclpy(data: bytes) -> JointState:
    try:
        return deserialize_message(data, JointState)
    except Exception as error:  # rclpy raises what its C++ does
        raise UnreadableError(f"{len(data)} bytes that are no JointState: {error}") from None


def from_message(message: JointState) -> FlatJointState:
    """The same of a message that rclpy has read."""
    stamp = message.header.stamp
    fields = (np.asarray(getattr(message, field)) for field in ("position", "velocity", "effort"))
    return FlatJointState(stamp.sec * NANO + stamp.nanosec, tuple(message.name), *fields)


def _numbers(body: memoryview, at: int) -> tuple[np.ndarray, int]:
    at = aligned(at, 4)
    (count,) = struct.unpack_from("<I", body, at)
    at += 4
    if not count:
        return np.zeros(0), at
    at = aligned(at, 8)
    return np.frombuffer(body, "<f8", count, at), at + 8 * count
