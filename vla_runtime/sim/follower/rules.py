"""Settings by distribution, and the checks at reception: what the controller drops, and the text that it logs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vla_runtime.sim.follower.message import TrajectoryMessage

DISTROS = ("humble", "jazzy", "kilted", "rolling")

# std::numeric_limits<float>::epsilon(): the controller compares a double with it.
FLOAT_EPSILON = float(np.finfo(np.float32).eps)


class Rejection(NamedTuple):
    """Why a message was dropped: a short name to count by, and the text of the controller's log."""

    reason: str
    text: str


@dataclass(frozen=True)
class FollowerSettings:
    """The controller's parameters that decide over a stream; None = the distribution's default.

    Raises ValueError for an unknown distribution, a rate that is not positive, or negative times.
    """

    distro: str = "jazzy"
    update_rate_hz: float = 250.0
    allow_partial_joints_goal: bool = False
    allow_nonzero_velocity_at_trajectory_end: bool | None = None  # default: true on humble, false later
    interpolate_from_desired_state: bool = False  # humble: open_loop_control
    allow_trajectory_replacement: bool | None = None  # rolling only, default true there
    cmd_timeout_s: float = 0.0
    goal_time_s: float = 0.0  # constraints.goal_time
    trajectory_tolerance_rad: float = 0.0  # constraints.<joint>.trajectory, 0 = not checked
    goal_tolerance_rad: float = 0.0  # constraints.<joint>.goal, 0 = not checked
    velocity_state: bool = True  # whether the hardware reports velocities

    def __post_init__(self):
        if self.distro not in DISTROS:
            raise ValueError(f"distro is '{self.distro}'; it must be one of {', '.join(DISTROS)}")
        if not self.update_rate_hz > 0:
            raise ValueError(f"update_rate_hz is {self.update_rate_hz}; it must be above 0")
        for name in ("cmd_timeout_s", "goal_time_s", "trajectory_tolerance_rad", "goal_tolerance_rad"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or above")

    @property
    def nonzero_end_velocity(self) -> bool:
        """Whether a message may end moving."""
        if self.allow_nonzero_velocity_at_trajectory_end is None:
            return self.distro == "humble"
        return self.allow_nonzero_velocity_at_trajectory_end

    @property
    def splices(self) -> bool:
        """Whether a new message is spliced into the running one (master since PR #2401) instead of replacing it."""
        if self.distro != "rolling":
            return False
        return self.allow_trajectory_replacement is not False

    @property
    def looks_ahead(self) -> bool:
        """Whether the command is sampled one update period ahead (jazzy and later)."""
        return self.distro != "humble"

    @property
    def timeout_s(self) -> float:
        """The command timeout in force: one not above goal_time is switched off (PR #609)."""
        return self.cmd_timeout_s if self.cmd_timeout_s > self.goal_time_s else 0.0


def validate(
    message: TrajectoryMessage, joint_names: list[str], settings: FollowerSettings, now_ns: int
) -> Rejection | None:
    """What the controller with these joints and settings would say to the message at now_ns (ROS time).

    Returns None for a message that it would take. Not checked there, and so not here: NaN, position and velocity
    limits, duplicate names, the distance from the current state.
    """
    names = message.joint_names
    if not settings.allow_partial_joints_goal and len(names) != len(joint_names):
        return Rejection("joint_count", "Joints on incoming trajectory don't match the controller joints.")
    if not names:
        return Rejection("no_joints", "Empty joint names on incoming trajectory.")
    if not message.points:
        return Rejection("no_points", "Empty trajectory received.")
    # Humble looks at the end time before it looks at the names; the text that is logged depends on it.
    checks = [
        lambda: _unknown_joint(message, joint_names),
        lambda: None if settings.nonzero_end_velocity else _end_velocity(message),
        lambda: _ends_in_the_past(message, now_ns),
    ]
    if settings.distro == "humble":
        checks.insert(0, checks.pop())
    for check in checks:
        rejection = check()
        if rejection:
            return rejection
    return _points(message, settings.distro)


def _unknown_joint(message: TrajectoryMessage, joint_names: list[str]) -> Rejection | None:
    for name in message.joint_names:
        if name not in joint_names:
            return Rejection("unknown_joint", f"Incoming joint {name} doesn't match the controller's joints.")
    return None


def _end_velocity(message: TrajectoryMessage) -> Rejection | None:
    # A vector longer than the names makes the controller throw; the size check below names it here.
    for name, velocity in zip(message.joint_names, message.points[-1].velocities):
        if abs(velocity) > FLOAT_EPSILON:
            return Rejection(
                "end_velocity", f"Velocity of last trajectory point of joint {name} is not zero: {velocity:.15f}"
            )
    return None


def _ends_in_the_past(message: TrajectoryMessage, now_ns: int) -> Rejection | None:
    end_ns = message.stamp_ns + message.points[-1].time_ns
    if message.stamp_ns != 0 and end_ns < now_ns:
        start_s, end_s = message.stamp_ns * 1e-9, end_ns * 1e-9
        return Rejection(
            "ends_in_past",
            f"Received trajectory with non-zero start time ({start_s:f}) that ends in the past ({end_s:f})",
        )
    return None


def _points(message: TrajectoryMessage, distro: str) -> Rejection | None:
    count = len(message.joint_names)
    for i, point in enumerate(message.points):
        before_ns = message.points[i - 1].time_ns if i else 0
        if i and point.time_ns <= before_ns:
            return Rejection(
                "time_order",
                f"Time between points {i - 1} and {i} is not strictly increasing, "
                f"it is {before_ns * 1e-9:f} and {point.time_ns * 1e-9:f} respectively",
            )
        for field in ("positions", "velocities", "accelerations"):
            size = len(getattr(point, field))
            if size != count and (size or field == "positions"):
                return Rejection(
                    "size_mismatch", f"Mismatch between joint_names size ({count}) and {field} ({size}) at point #{i}."
                )
        if len(point.effort):
            return Rejection(
                "effort",
                "Trajectories with effort fields are currently not supported."
                if distro == "humble"
                else "Trajectories with effort fields are only supported for controllers using the 'effort' command "
                "interface.",
            )
    return None
