"""What the follower commands at an instant: interpolation, stamps, the past, the end, holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.sim.follower import DISTROS, Follower, FollowerSettings, Point, TrajectoryMessage
from vla_runtime.sim.follower.sampling import Segment

MS = 1_000_000
NOW_NS = 1_700_000_000 * 10**9
LATER = ["jazzy", "kilted", "rolling"]


def follower_of(position=0.0, velocity=None, **changes):
    follower = Follower(["j"], FollowerSettings(update_rate_hz=500.0, **changes))
    follower.activate(np.array([position]), velocity)
    return follower


def one_joint(*points, stamp_ns=NOW_NS):
    return TrajectoryMessage(stamp_ns, ["j"], [Point(t * MS, *([x] for x in values)) for t, *values in points])


def at(follower, milliseconds, measured=0.0):
    return follower.update(NOW_NS + round(milliseconds * MS), np.array([measured]))


def ahead_ms(follower):
    return 2.0 if follower.settings.looks_ahead else 0.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-3, 3), min_size=6, max_size=6),
    st.floats(0.004, 2.0),
    st.floats(0, 1),
    st.sampled_from([1, 3, 5]),
)
def test_interpolation_reproduces_the_polynomial_of_its_degree(coefficients, duration_s, fraction, degree):
    polynomial = np.polynomial.Polynomial(coefficients[: degree + 1])
    b_ns = round(duration_s * 1e9)
    t_ns = round(b_ns * fraction)
    derivatives = (degree + 1) // 2

    def state(t_ns):
        return Point(t_ns, *[[polynomial.deriv(k)(t_ns * 1e-9)] for k in range(derivatives)])

    got = Segment(0, state(0), b_ns, state(b_ns)).at(t_ns)
    for k, values in enumerate((got.positions, got.velocities, got.accelerations)):
        expected = polynomial.deriv(k)(t_ns * 1e-9) if k <= degree else 0.0
        assert values[0] == pytest.approx(expected, abs=1e-6 * (1 + 10 / duration_s**k))


@pytest.mark.parametrize(
    ("a", "b", "degree"),
    [
        (Point(0, [0], [1]), Point(0, [1]), 1),
        (Point(0, [0]), Point(0, [1], [0], [0]), 1),
        (Point(0, [0], [1], [9]), Point(0, [1], [0]), 3),
    ],
)
def test_the_lowest_common_level_of_both_ends_is_used(a, b, degree):
    middle = Segment(0, a, 10**9, b).at(5 * 10**8)
    if degree == 1:
        assert middle.positions[0] == 0.5
        assert middle.velocities[0] == 1.0
    else:
        assert middle.positions[0] == pytest.approx(0.5 + 1 / 8)


def test_accelerations_without_velocities_command_zero_as_the_controller_does():
    a, b = Point(0, [2], [], [1]), Point(0, [3], [], [1])
    assert Segment(0, a, 10**9, b).at(5 * 10**8).positions[0] == 0.0


@pytest.mark.parametrize("distro", DISTROS)
def test_holds_the_measured_position_from_activation_on(distro):
    follower = follower_of(0.3, distro=distro)
    for k in range(3):
        command = at(follower, 2 * k, measured=0.3 - 0.01 * k)
        assert command.positions[0] == 0.3
        assert command.velocities[0] == 0.0
    assert follower.holding


@pytest.mark.parametrize("distro", DISTROS)
def test_absolute_stamp_follows_the_plan_in_absolute_time_whenever_it_arrives(distro):
    follower = follower_of(distro=distro, allow_trajectory_replacement=False if distro == "rolling" else None)
    at(follower, 0)
    # Stamped now, arriving 7 ms late: what has elapsed is skipped, and there is no bridge from the state.
    follower.accept(one_joint((0, 0.0), (100, 1.0)), NOW_NS + 7 * MS)
    for t in (8, 10, 12, 60):
        assert at(follower, t).positions[0] == pytest.approx((t + ahead_ms(follower)) / 100)


@pytest.mark.parametrize("distro", DISTROS)
def test_stamp_zero_starts_at_the_first_update_that_sees_it(distro):
    follower = follower_of(distro=distro)
    at(follower, 0)
    follower.accept(one_joint((0, 0.0), (100, 1.0), stamp_ns=0), NOW_NS + 7 * MS)
    for t in (8, 10, 60):
        assert at(follower, t).positions[0] == pytest.approx((t - 8 + ahead_ms(follower)) / 100)


@pytest.mark.parametrize("distro", ["humble", "jazzy", "kilted"])
def test_a_new_message_forgets_the_old_even_if_it_starts_later(distro):
    follower = follower_of(distro=distro)
    follower.accept(one_joint((0, 0.0), (100, 1.0)), NOW_NS)
    at(follower, 0)
    follower.accept(one_joint((0, 5.0), stamp_ns=NOW_NS + 100 * MS), NOW_NS)
    command = at(follower, 50, measured=0.2)
    # Linear from the measured state at the first sample (50 ms) to 5.0 at 100 ms; the old plan is forgotten.
    assert command.positions[0] == pytest.approx(0.2 + 4.8 * ahead_ms(follower) / 50)


def test_the_bridge_starts_at_the_measured_state_or_at_the_last_command():
    for from_desired, start in ((False, 0.2), (True, 0.5)):
        follower = follower_of(distro="humble", interpolate_from_desired_state=from_desired)
        follower.accept(one_joint((0, 0.5)), NOW_NS)
        at(follower, 0)
        follower.accept(one_joint((10, 1.0), stamp_ns=0), NOW_NS)
        assert at(follower, 2, measured=0.2).positions[0] == pytest.approx(start)
        assert at(follower, 7, measured=0.2).positions[0] == pytest.approx((start + 1.0) / 2)


def test_missing_derivatives_of_the_state_before_become_zero():
    follower = follower_of(distro="humble")
    follower.accept(one_joint((100, 1.0, 0.0), stamp_ns=0), NOW_NS)
    at(follower, 0)
    # A cubic from rest to rest, not a straight line: at a quarter it has done 5/32 of the way.
    assert at(follower, 25).positions[0] == pytest.approx(5 / 32)


@pytest.mark.parametrize("distro", DISTROS)
def test_the_last_point_is_repeated_for_ever(distro):
    follower = follower_of(distro=distro, allow_nonzero_velocity_at_trajectory_end=True)
    follower.accept(one_joint((0, 0.0, 0.0), (10, 1.0, 0.5)), NOW_NS)
    for t in (0, 8, 12, 5000):
        command = at(follower, t)
    assert command.positions[0] == 1.0
    assert command.velocities[0] == 0.5
    assert follower.resting
    assert not follower.holding


def test_command_timeout_counts_from_the_last_point_and_holds_the_measured_position():
    follower = follower_of(distro="jazzy", cmd_timeout_s=0.1)
    follower.accept(one_joint((0, 0.0), (20, 1.0)), NOW_NS)
    for t in range(0, 120, 2):
        at(follower, t, measured=0.9)
    assert follower.figures.holds == 0
    for t in range(120, 130, 2):
        command = at(follower, t, measured=0.9)
    assert follower.figures.holds == 1
    assert follower.holding
    assert command.positions[0] == 0.9  # a step of 0.1 rad: what the timeout does on a position interface
    follower.accept(one_joint((0, 0.4), stamp_ns=0), NOW_NS + 200 * MS)
    assert at(follower, 200).positions[0] == 0.4
    assert follower.figures.holds == 1


def test_command_timeout_not_above_goal_time_is_off():
    assert FollowerSettings(cmd_timeout_s=0.5, goal_time_s=0.5).timeout_s == 0.0
    assert FollowerSettings(cmd_timeout_s=0.6, goal_time_s=0.5).timeout_s == 0.6


def test_trajectory_tolerance_holds_until_the_next_message():
    follower = follower_of(distro="jazzy", trajectory_tolerance_rad=0.2)
    follower.accept(one_joint((0, 0.0), (100, 1.0)), NOW_NS)
    for t in range(0, 40, 2):
        command = at(follower, t)  # the arm does not move
    assert follower.figures.holds == 1
    assert command.positions[0] == 0.0
    follower.accept(one_joint((0, 0.1), (100, 0.2), stamp_ns=NOW_NS + 40 * MS), NOW_NS + 40 * MS)
    assert at(follower, 40).positions[0] > 0.1


def test_a_single_point_too_far_away_is_not_driven_to():
    follower = follower_of(distro="jazzy", trajectory_tolerance_rad=0.2)
    follower.accept(one_joint((0, 0.5)), NOW_NS)
    for t in range(0, 10, 2):
        command = at(follower, t)
    assert follower.figures.holds == 1
    assert command.positions[0] == 0.0


def test_goal_tolerance_holds_after_goal_time():
    follower = follower_of(distro="jazzy", goal_tolerance_rad=0.1, goal_time_s=0.05)
    follower.accept(one_joint((0, 0.5), (10, 0.5)), NOW_NS)
    for t in range(0, 56, 2):
        assert at(follower, t).positions[0] == 0.5
    for t in range(56, 66, 2):
        command = at(follower, t, measured=0.25)
    assert follower.figures.holds == 1
    assert command.positions[0] == 0.25


@pytest.mark.parametrize("distro", LATER)
def test_a_ros_clock_that_jumps_between_messages_does_not_move_the_plan(distro):
    follower = follower_of(distro=distro)
    follower.accept(one_joint((0, 0.0), (100, 1.0), stamp_ns=0), NOW_NS)
    at(follower, 0)
    command = follower.update(NOW_NS + 5 * 10**9, np.zeros(1), period_ns=2 * MS)
    assert command.positions[0] == pytest.approx(0.04)


def test_a_ros_clock_that_goes_back_keeps_the_last_command():
    follower = follower_of(distro="humble")
    follower.accept(one_joint((0, 0.0), (100, 1.0), stamp_ns=0), NOW_NS)
    at(follower, 0)
    at(follower, 10)
    assert at(follower, -5).positions[0] == pytest.approx(0.1)


def test_only_the_newest_of_two_messages_between_updates_counts():
    follower = follower_of()
    at(follower, 0)
    follower.accept(one_joint((0, 1.0)), NOW_NS)
    follower.accept(one_joint((0, 2.0)), NOW_NS)
    assert at(follower, 2).positions[0] == 2.0
    assert follower.figures.replaced == 1


def test_the_senders_message_is_not_changed():
    follower = Follower(["a", "b"], FollowerSettings(allow_partial_joints_goal=True))
    follower.activate(np.zeros(2))
    sent = TrajectoryMessage(0, ["b"], [Point(0, [1.0])])
    follower.accept(sent, NOW_NS)
    follower.update(NOW_NS, np.zeros(2))
    assert sent.joint_names == ["b"]
    assert sent.points[0].positions.tolist() == [1.0]
