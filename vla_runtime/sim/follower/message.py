"""The message as the follower sees it: integer nanoseconds and plain arrays, from ROS or from a planned Trajectory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

NOTHING = np.zeros(0)
NOTHING.setflags(write=False)


def _vector(values) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    return np.array(values, dtype=np.float64) if len(values) else NOTHING


@dataclass
class Point:
    """One waypoint. Empty vectors mean "not given", as in trajectory_msgs/JointTrajectoryPoint."""

    time_ns: int  # time_from_start
    positions: np.ndarray = field(default_factory=lambda: NOTHING)  # (n,) rad
    velocities: np.ndarray = field(default_factory=lambda: NOTHING)  # (n,) rad/s
    accelerations: np.ndarray = field(default_factory=lambda: NOTHING)  # (n,) rad/s^2
    effort: np.ndarray = field(default_factory=lambda: NOTHING)  # (n,) Nm

    def __post_init__(self):
        self.positions = _vector(self.positions)
        self.velocities = _vector(self.velocities)
        self.accelerations = _vector(self.accelerations)
        self.effort = _vector(self.effort)


@dataclass
class TrajectoryMessage:
    """What trajectory_msgs/JointTrajectory carries. `stamp_ns` 0 means "start when you first see it"."""

    stamp_ns: int
    joint_names: list[str]
    points: list[Point]

    def copy(self) -> "TrajectoryMessage":
        """A copy whose points may be given other vectors; the vectors themselves are shared."""
        return TrajectoryMessage(self.stamp_ns, list(self.joint_names), [replace(p) for p in self.points])

    @staticmethod
    def from_ros(message) -> "TrajectoryMessage":
        """From a trajectory_msgs/JointTrajectory (anything with its fields)."""
        stamp = message.header.stamp
        return TrajectoryMessage(
            stamp_ns=stamp.sec * 1_000_000_000 + stamp.nanosec,
            joint_names=list(message.joint_names),
            points=[
                Point(
                    p.time_from_start.sec * 1_000_000_000 + p.time_from_start.nanosec,
                    p.positions,
                    p.velocities,
                    p.accelerations,
                    p.effort,
                )
                for p in message.points
            ],
        )

    @staticmethod
    def from_arrays(
        stamp_ns: int,
        joint_names: Sequence[str],
        times_s: np.ndarray,
        positions: np.ndarray,
        velocities: np.ndarray | None = None,
    ) -> "TrajectoryMessage":
        """From times (m,) in s from the stamp, positions (m, n) rad and velocities (m, n) rad/s or None.

        Times are rounded to the nanosecond, as builtin_interfaces/Duration holds them.
        """
        times = [round(float(t) * 1e9) for t in times_s]
        return TrajectoryMessage(
            stamp_ns,
            list(joint_names),
            [
                Point(t, p, NOTHING if velocities is None else velocities[i])
                for i, (t, p) in enumerate(zip(times, positions))
            ],
        )
