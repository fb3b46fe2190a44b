"""JointStates from their bytes: 1 kHz of them must not cost what rclpy needs to make objects of them."""

import struct
from dataclasses import dataclass

import numpy as np
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState

from vla_runtime.nodes.cdr import NANO, aligned, body_of, get_header, get_names


@dataclass(frozen=True, eq=False)
class FlatJointState:
    """A JointState as arrays: names, and position, velocity, effort as they came (each may be empty)."""

    stamp_ns: int
    names: tuple[str, ...]
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


def read_joint_state(data: bytes) -> FlatJointState:
    """Read a serialised JointState; what is not little-endian CDR is left to rclpy."""
    try:
        body = body_of(data)
        stamp_ns, _, at = get_header(body)
        names, at = get_names(body, at)
        position, at = _numbers(body, at)
        velocity, at = _numbers(body, at)
        effort, at = _numbers(body, at)
    except (struct.error, ValueError, UnicodeDecodeError):
        return from_message(deserialize_message(data, JointState))
    return FlatJointState(stamp_ns, names, position, velocity, effort)


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
