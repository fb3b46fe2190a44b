"""Replacement on rolling: what `allow_trajectory_replacement` splices, replays and leaves alone.

The controller counts from the update before the one that installs a message, so all splices are one period (2 ms,
here 0.02 rad) late; `LATE` allows for it.
"""

import numpy as np
import pytest

from vla_runtime.sim.follower import Follower, FollowerSettings, Point, TrajectoryMessage

MS = 1_000_000
NOW_NS = 1_700_000_000 * 10**9
LATE = 0.0201


def rolling(joints=("j",), **changes):
    follower = Follower(joints, FollowerSettings(distro="rolling", update_rate_hz=500.0, **changes))
    follower.activate(np.zeros(len(joints)))
    return follower


def line(start, end, stamp_ms, duration_ms=100, names=("j",)):
    n = len(names)
    points = [Point(0, [start] * n), Point(duration_ms * MS, [end] * n)]
    return TrajectoryMessage(NOW_NS + round(stamp_ms * MS) if stamp_ms is not None else 0, list(names), points)


def run_to(follower, start_ms, end_ms):
    n = len(follower.joint_names)
    for t in np.arange(start_ms, end_ms + 1, 2):
        command = follower.update(NOW_NS + round(t * MS), np.zeros(n))
    return command


def arrive(follower, message, at_ms):
    assert follower.accept(message, NOW_NS + round(at_ms * MS)) is None


def test_a_future_start_leaves_the_old_plan_until_then():
    follower = rolling(interpolate_from_desired_state=True)
    arrive(follower, line(0.0, 1.0, 0), 0)
    run_to(follower, 0, 10)
    arrive(follower, line(0.5, 0.5, 50), 11)
    assert run_to(follower, 12, 30).positions[0] == pytest.approx(0.32, abs=LATE)
    assert run_to(follower, 32, 46).positions[0] == pytest.approx(0.48, abs=LATE)
    assert run_to(follower, 48, 60).positions[0] == pytest.approx(0.5)
    assert follower.figures.spliced == 1


def test_a_stamp_in_the_past_replays_what_has_elapsed():
    for replacement, expected in ((None, 0.52), (True, 0.52), (False, 0.52 + 0.3)):
        follower = rolling(allow_trajectory_replacement=replacement)
        arrive(follower, line(0.0, 1.0, 0), 0)
        run_to(follower, 0, 50)
        # 30 ms old when it arrives. Spliced, its first point is executed now, 30 ms late.
        arrive(follower, line(0.5, 1.5, 22), 51)
        assert run_to(follower, 52, 52).positions[0] == pytest.approx(expected)


def test_replacement_off_is_the_rule_of_the_older_ones():
    follower = rolling(allow_trajectory_replacement=False)
    arrive(follower, line(0.0, 1.0, 0), 0)
    run_to(follower, 0, 10)
    arrive(follower, line(0.5, 0.5, 50), 11)
    assert run_to(follower, 12, 30).positions[0] == pytest.approx(0.5 * 20 / 38)  # from the measured 0.0 at 12 ms
    assert follower.figures.spliced == 0


def test_single_points_never_splice():
    follower = rolling()
    for k in range(5):
        message = TrajectoryMessage(0, ["j"], [Point(20 * MS, [0.1 * k])])
        arrive(follower, message, 10 * k)
        run_to(follower, 10 * k, 10 * k + 8)
    assert follower.figures.spliced == 0


def test_the_hold_of_the_start_is_not_spliced_into():
    follower = rolling()
    run_to(follower, 0, 10)
    arrive(follower, line(0.0, 1.0, 12), 11)
    run_to(follower, 12, 20)
    assert follower.figures.spliced == 0
    arrive(follower, line(0.0, 1.0, 12), 21)
    run_to(follower, 22, 30)
    assert follower.figures.spliced == 1


def test_the_bridge_enters_the_new_plan_from_the_old_ones_state():
    follower = rolling(interpolate_from_desired_state=True)
    arrive(follower, line(0.0, 1.0, 0), 0)
    run_to(follower, 0, 10)
    late = TrajectoryMessage(NOW_NS + 30 * MS, ["j"], [Point(20 * MS, [2.0])])
    arrive(follower, late, 11)
    # Old plan to 30 ms (0.3), then a straight line to 2.0 at 50 ms.
    assert run_to(follower, 12, 26).positions[0] == pytest.approx(0.28, abs=LATE)
    assert run_to(follower, 28, 38).positions[0] == pytest.approx(0.3 + 1.7 * 10 / 20, abs=LATE)


def test_omitted_joints_go_on_with_the_old_plan_and_named_ones_stay_at_their_end():
    follower = rolling(("a", "b"), allow_partial_joints_goal=True)
    arrive(follower, line(0.0, 1.0, 0, names=("a", "b")), 0)
    run_to(follower, 0, 10)
    arrive(follower, line(0.1, 0.3, None, duration_ms=20, names=("b",)), 11)
    a, b = run_to(follower, 12, 30).positions
    assert a == pytest.approx(0.32, abs=LATE)
    assert b == pytest.approx(0.3)
    a, b = run_to(follower, 32, 110).positions
    assert a == pytest.approx(1.0)
    assert b == pytest.approx(0.3)


def test_on_jazzy_omitted_joints_stop():
    follower = Follower(
        ["a", "b"], FollowerSettings(distro="jazzy", update_rate_hz=500.0, allow_partial_joints_goal=True)
    )
    follower.activate(np.zeros(2))
    arrive(follower, line(0.0, 1.0, 0, names=("a", "b")), 0)
    run_to(follower, 0, 10)
    arrive(follower, line(0.1, 0.3, None, duration_ms=20, names=("b",)), 11)
    assert run_to(follower, 12, 110).positions.tolist() == pytest.approx([0.12, 0.3])


def test_a_clock_that_went_back_does_not_break_the_splice():
    follower = rolling(interpolate_from_desired_state=True)
    arrive(follower, line(0.0, 1.0, 0), 0)
    run_to(follower, 0, 20)
    arrive(follower, line(0.2, 1.0, -100, duration_ms=200), -100)
    back = follower.update(NOW_NS - 100 * MS, np.zeros(1))
    assert back.positions[0] == pytest.approx(0.22)
    arrive(follower, line(0.2, 1.0, -98, duration_ms=200), -98)
    assert np.isfinite(follower.update(NOW_NS - 98 * MS, np.zeros(1)).positions[0])
