"""Every row of the controller's rejection table, with its text, and what it does not check."""

import numpy as np
import pytest

from vla_runtime.sim.follower import DISTROS, Follower, FollowerSettings, Point, TrajectoryMessage

JOINTS = ["a", "b"]
NOW_NS = 1_700_000_000 * 10**9
MS = 1_000_000


def message(points=None, names=JOINTS, stamp_ns=NOW_NS):
    if points is None:
        points = [Point(0, [0.1, 0.2], [0.0, 0.0]), Point(20 * MS, [0.1, 0.2], [0.0, 0.0])]
    return TrajectoryMessage(stamp_ns, list(names), points)


def offer(sent, **settings):
    follower = Follower(JOINTS, FollowerSettings(**settings))
    follower.activate(np.zeros(2))
    return follower, follower.accept(sent, NOW_NS)


NO_MATCH = "Joints on incoming trajectory don't match the controller joints."
UNORDERED = [Point(20 * MS, [0, 0]), Point(20 * MS, [0, 0])]
REJECTED = {
    "fewer joints": (message([Point(0, [0.1])], ["a"]), {}, "joint_count", NO_MATCH),
    "more joints": (message([Point(0, [0.1] * 3)], ["a", "b", "c"]), {}, "joint_count", NO_MATCH),
    "no joints": (
        message(names=[]),
        {"allow_partial_joints_goal": True},
        "no_joints",
        "Empty joint names on incoming trajectory.",
    ),
    "no points": (message([]), {}, "no_points", "Empty trajectory received."),
    "unknown joint": (
        message(names=["a", "c"]),
        {},
        "unknown_joint",
        "Incoming joint c doesn't match the controller's joints.",
    ),
    "ends moving": (
        message([Point(0, [0, 0], [0, 0]), Point(MS, [0, 0], [0, 4e-7])]),
        {},
        "end_velocity",
        "Velocity of last trajectory point of joint b is not zero: 0.000000400000000",
    ),
    "ends in the past": (
        message(stamp_ns=NOW_NS - 21 * MS),
        {},
        "ends_in_past",
        "Received trajectory with non-zero start time (1699999999.979000) that ends in the past (1699999999.999000)",
    ),
    "equal times": (
        message(UNORDERED),
        {},
        "time_order",
        "Time between points 0 and 1 is not strictly increasing, it is 0.020000 and 0.020000 respectively",
    ),
    "no positions": (
        message([Point(0, [], [0, 0])]),
        {},
        "size_mismatch",
        "Mismatch between joint_names size (2) and positions (0) at point #0.",
    ),
    "short velocities": (
        message([Point(0, [0, 0]), Point(MS, [0, 0], [0])]),
        {},
        "size_mismatch",
        "Mismatch between joint_names size (2) and velocities (1) at point #1.",
    ),
    "long accelerations": (
        message([Point(0, [0, 0], [], [0, 0, 0])]),
        {},
        "size_mismatch",
        "Mismatch between joint_names size (2) and accelerations (3) at point #0.",
    ),
    "effort": (
        message([Point(0, [0, 0], effort=[1, 1])]),
        {},
        "effort",
        "Trajectories with effort fields are only supported for controllers using the 'effort' command interface.",
    ),
    "effort on humble": (
        message([Point(0, [0, 0], effort=[1, 1])]),
        {"distro": "humble"},
        "effort",
        "Trajectories with effort fields are currently not supported.",
    ),
}


@pytest.mark.parametrize("row", REJECTED)
def test_rejected_whole_with_the_controllers_text_and_the_old_goes_on(row):
    sent, settings, reason, text = REJECTED[row]
    follower, rejection = offer(message([Point(0, [0.5, -0.5])]), **settings)
    assert rejection is None
    rejection = follower.accept(sent, NOW_NS)
    assert rejection == (reason, text)
    assert follower.figures.rejected == {reason: 1}
    assert follower.figures.last_rejection == text
    command = follower.update(NOW_NS, np.zeros(2))
    assert command.positions.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("distro", DISTROS)
def test_ending_in_motion_is_taken_by_default_on_humble_only(distro):
    moving = message([Point(MS, [0, 0], [0, 0.1])])
    assert (offer(moving, distro=distro)[1] is None) == (distro == "humble")
    assert offer(moving, distro=distro, allow_nonzero_velocity_at_trajectory_end=True)[1] is None
    refused = offer(moving, distro=distro, allow_nonzero_velocity_at_trajectory_end=False)[1]
    assert refused.reason == "end_velocity"


def test_end_velocity_has_the_epsilon_of_a_float():
    assert offer(message([Point(MS, [0, 0], [0, 1.19e-7])]))[1] is None
    assert offer(message([Point(MS, [0, 0], [0, -1.2e-7])]))[1].reason == "end_velocity"


def test_humble_looks_at_the_end_time_first():
    bad_twice = message(names=["a", "c"], stamp_ns=NOW_NS - 10**9)
    assert offer(bad_twice, distro="humble")[1].reason == "ends_in_past"
    assert offer(bad_twice, distro="jazzy")[1].reason == "unknown_joint"


def test_stamp_zero_never_ends_in_the_past_and_now_is_not_past():
    assert offer(message(stamp_ns=0))[1] is None
    assert offer(message(stamp_ns=NOW_NS - 20 * MS))[1] is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_values_are_not_looked_at_but_counted_when_not_finite(value):
    follower, rejection = offer(message([Point(0, [value, 0.0])]))
    assert rejection is None
    assert follower.figures.not_finite == (not np.isfinite(value))
    command = follower.update(NOW_NS, np.zeros(2)).positions[0]
    assert command == value or np.isnan(command) and np.isnan(value)


def test_duplicate_names_pass_and_the_other_joint_gets_what_was_last_sorted():
    follower, rejection = offer(message([Point(0, [0.5, 0.7])]))
    follower.update(NOW_NS, np.zeros(2))
    assert follower.accept(message([Point(0, [1.0, 2.0])], ["a", "a"]), NOW_NS) is None
    assert follower.update(NOW_NS + MS, np.zeros(2)).positions.tolist() == [2.0, 0.7]


def test_order_of_joints_is_free():
    follower, rejection = offer(message([Point(0, [1.0, 2.0])], ["b", "a"]))
    assert rejection is None
    assert follower.update(NOW_NS, np.zeros(2)).positions.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("distro", DISTROS)
def test_partial_goal_leaves_the_others_where_they_are_commanded(distro):
    follower, _ = offer(message([Point(0, [1.0, 2.0])]), distro=distro, allow_partial_joints_goal=True)
    follower.update(NOW_NS, np.zeros(2))
    assert follower.accept(message([Point(0, [3.0])], ["b"]), NOW_NS) is None
    assert follower.update(NOW_NS + MS, np.zeros(2)).positions.tolist() == [1.0, 3.0]


def test_settings_and_joints_are_checked():
    with pytest.raises(ValueError, match="foxy.*humble"):
        FollowerSettings(distro="foxy")
    with pytest.raises(ValueError, match="update_rate_hz"):
        FollowerSettings(update_rate_hz=0)
    with pytest.raises(ValueError, match="cmd_timeout_s"):
        FollowerSettings(cmd_timeout_s=-1.0)
    with pytest.raises(ValueError, match="each once"):
        Follower(["a", "a"])
    with pytest.raises(RuntimeError, match="activate"):
        Follower(["a"]).update(0, np.zeros(1))


def test_messages_from_ros_and_from_arrays_say_the_same():
    ros = pytest.importorskip("trajectory_msgs.msg")
    duration = pytest.importorskip("builtin_interfaces.msg").Duration
    sent = ros.JointTrajectory(joint_names=JOINTS)
    sent.header.stamp.sec, sent.header.stamp.nanosec = 12, 34
    for k in range(3):
        point = ros.JointTrajectoryPoint(positions=[0.1 * k, 1.0], velocities=[0.0, -0.5 * k])
        point.time_from_start = duration(sec=k, nanosec=20 * MS)
        sent.points.append(point)
    got = TrajectoryMessage.from_ros(sent)
    same = TrajectoryMessage.from_arrays(
        12 * 10**9 + 34,
        JOINTS,
        np.arange(3) + 0.02,
        np.array([[0.1 * k, 1.0] for k in range(3)]),
        np.array([[0.0, -0.5 * k] for k in range(3)]),
    )
    assert got.stamp_ns == same.stamp_ns
    assert got.joint_names == same.joint_names
    for a, b in zip(got.points, same.points):
        assert a.time_ns == b.time_ns
        np.testing.assert_array_equal(a.positions, b.positions)
        np.testing.assert_array_equal(a.velocities, b.velocities)
        assert len(a.accelerations) == len(b.accelerations) == 0
