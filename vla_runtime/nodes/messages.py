"""Trajectories, chunks and requests as trajectory_msgs/JointTrajectory, and back (docs/architecture.md, Topics).

Writers keep their message objects and fill them anew: building 25 points of 6 joints from scratch costs three times
as much, 50 times a second. What they return is valid until the next call.
"""

import struct
from array import array
from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.serialization import deserialize_message
from std_msgs.msg import Header
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.errors import UserError
from vla_runtime.nodes.cdr import body_of, get_header
from vla_runtime.nodes.clock import NANO, StampClock
from vla_runtime.nodes.joint_map import JointMap
from vla_runtime.nodes.trajectory_cdr import FlatTrajectory, decode


class MessageError(UserError):
    """A message whose fields contradict each other; the text says which."""


def stamp_ns(stamp: Time) -> int:
    """A builtin_interfaces/Time as nanoseconds."""
    return stamp.sec * NANO + stamp.nanosec


def set_stamp(stamp: Time, nanoseconds: int) -> None:
    """Write nanoseconds into a builtin_interfaces/Time (or Duration)."""
    stamp.sec, stamp.nanosec = divmod(nanoseconds, NANO)


class TrajectoryWriter:
    """Fills one JointTrajectory again and again."""

    def __init__(self, joint_names: Sequence[str]):
        self._message = JointTrajectory(joint_names=list(joint_names))
        self._pool: list[JointTrajectoryPoint] = []

    def write(
        self, stamp: int, frame_id: str, times: np.ndarray, positions: np.ndarray, velocities: np.ndarray | None
    ) -> JointTrajectory:
        """``stamp`` in ROS nanoseconds; times (m,) s, positions and velocities (m, n). Valid until the next call."""
        count, width = positions.shape
        while len(self._pool) < count:
            self._pool.append(JointTrajectoryPoint())
        row = 8 * width
        p = np.ascontiguousarray(positions, dtype=np.float64).tobytes()
        v = None if velocities is None else np.ascontiguousarray(velocities, dtype=np.float64).tobytes()
        nanoseconds = np.rint(np.asarray(times) * NANO).astype(np.int64).tolist()
        for i, point in enumerate(self._pool[:count]):
            point.positions = array("d", p[i * row : (i + 1) * row])
            point.velocities = array("d", v[i * row : (i + 1) * row] if v is not None else b"")
            set_stamp(point.time_from_start, nanoseconds[i])
        message = self._message
        message.points = self._pool[:count]
        message.header.frame_id = frame_id
        set_stamp(message.header.stamp, stamp)
        return message


def read_header(data: bytes) -> tuple[int, str]:
    """Stamp (ROS nanoseconds) and frame_id of a serialised message that begins with a header; the rest is not read.

    Raises MessageError.
    """
    try:
        stamp, frame_id, _ = get_header(body_of(data))
    except (struct.error, ValueError, UnicodeDecodeError):
        try:
            header = deserialize_message(data, Header)
        except Exception as error:  # rclpy raises what its C++ does
            raise MessageError(f"{len(data)} bytes that do not begin with a header: {error}") from None
        return stamp_ns(header.stamp), header.frame_id
    return stamp, frame_id


def read_table(message: JointTrajectory, field: str) -> np.ndarray:
    """One field of all points as (m, n) float64. Raises MessageError naming the first point of another width."""
    width = len(message.joint_names)
    rows = [getattr(point, field) for point in message.points]
    for i, row in enumerate(rows):
        if len(row) != width:
            raise MessageError(f"point {i} has {len(row)} values of {field} for {width} joint names")
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def read_times(message: JointTrajectory) -> np.ndarray:
    """time_from_start of all points, (m,) s."""
    return np.array([point.time_from_start.sec + point.time_from_start.nanosec / NANO for point in message.points])


def read_trajectory(data: bytes, joints: JointMap, stamps: StampClock, arrival: float) -> Trajectory:
    """A serialised trajectory in our order of joints; one without a stamp begins at ``arrival`` (steady s).

    Raises MessageError or JointNameError. Whether it may be followed is not judged here.
    """
    flat = decode(data)
    if flat is None or not flat.velocities.size:
        flat = _flat(data)
    order = joints.order(flat.joint_names, "trajectory")
    first = float(flat.times[0])
    return Trajectory(
        start=(stamps.to_steady(flat.stamp_ns) if flat.stamp_ns else arrival) + first,
        joint_names=joints.joint_names,
        times=flat.times - first,
        positions=flat.positions[:, order],
        velocities=flat.velocities[:, order],
        plan_id=flat.frame_id,
    )


def _flat(data: bytes, moving: bool = True) -> FlatTrajectory:
    try:
        message = deserialize_message(data, JointTrajectory)
    except Exception as error:  # rclpy raises what its C++ does
        raise MessageError(f"not a JointTrajectory: {error}") from None
    if not message.points:
        raise MessageError("a trajectory without points")
    return FlatTrajectory(
        stamp_ns(message.header.stamp),
        message.header.frame_id,
        tuple(message.joint_names),
        read_times(message),
        read_table(message, "positions"),
        read_table(message, "velocities") if moving else np.zeros((len(message.points), 0)),
    )


def read_chunk(data: bytes, stamps: StampClock, arrival: float) -> ActionChunk:
    """A serialised answer of the policy, in the policy's own order of joints. Raises MessageError."""
    flat = decode(data) or _flat(data, moving=False)
    times = flat.times
    if len(times) < 2:
        raise MessageError(f"a chunk of {len(times)} points: at least 2 are needed to know its step")
    dt = float(times[-1] - times[0]) / (len(times) - 1)
    if times[0] != 0.0 or dt <= 0 or not np.allclose(times, dt * np.arange(len(times)), atol=1e-6, rtol=0.0):
        raise MessageError("a chunk's times must be 0, dt, 2 dt, ... with one dt above 0")
    return ActionChunk(
        t0=stamps.to_steady(flat.stamp_ns),
        dt=dt,
        joint_names=flat.joint_names,
        positions=flat.positions,
        request_id=flat.frame_id,
        received=arrival,
    )
