import numpy as np
import pytest

from vla_runtime.control.request import History, prefix
from vla_runtime.control.resample import Grid, resample
from vla_runtime.control.trajectory import Trajectory

NOW = 10.0
PERIOD = 0.02


def line(t):
    """What is executed: joint 0 moves at 0.5 rad/s, joint 1 rests at 0.2."""
    t = np.asarray(t, float)
    return np.column_stack((0.5 * (t - NOW), np.full(t.shape, 0.2)))


def history(seconds=0.5):
    past = History(seconds, PERIOD)
    for k in range(50, -1, -1):
        past.add(NOW - k * PERIOD, line([NOW - k * PERIOD])[0])
    return past


def trajectory(start=NOW, window=10, plan_id="e:1"):
    times = np.concatenate((PERIOD * np.arange(window + 1), PERIOD * window + np.array([0.05, 0.1])))
    positions = line(start + times)
    positions[window + 1 :] = positions[window] + [0.001, 0.0]
    velocities = np.zeros_like(positions)
    velocities[: window + 1] = [0.5, 0.0]
    return Trajectory(start, ("a", "b"), times, positions, velocities, plan_id, window)


def plan(seconds=1.0, dt=0.05):
    t0 = NOW - 0.3
    times = t0 + dt * np.arange(round(seconds / dt) + 1)
    return resample("e:1", t0, dt, line(times), Grid(NOW + 0.01, PERIOD))


@pytest.mark.parametrize("dt", [0.02, 0.05, 1 / 30, 0.1])
def test_it_is_what_was_and_will_be_executed_a_policy_step_apart(dt):
    times, positions = prefix(NOW, dt, history(), trajectory(), plan(), 0.2)
    assert np.diff(times) == pytest.approx(dt)
    assert 0.0 in times
    assert times[0] >= -0.2 - 1e-9
    assert times[0] < -0.2 + dt
    assert times[-1] <= 0.7 + 1e-9  # the plan's end
    assert times[-1] > 0.7 - dt - PERIOD
    assert positions == pytest.approx(line(NOW + times), abs=1e-9)


def test_without_a_plan_behind_it_the_stop_is_what_will_be_executed():
    ahead = trajectory()
    times, positions = prefix(NOW, 0.02, history(), ahead, None, 0.0)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(0.3)
    assert positions[-1] == pytest.approx(ahead.positions[-1])


def test_a_trajectory_that_began_before_counts_from_now_on():
    times, positions = prefix(NOW, 0.02, history(), trajectory(start=NOW - 0.1), None, 0.0)
    assert times[0] == 0.0
    assert positions[0] == pytest.approx(line([NOW])[0])
    assert times[-1] == pytest.approx(0.2)


def test_a_trajectory_at_its_end_is_one_point():
    resting = Trajectory(NOW - 5.0, ("a", "b"), np.zeros(1), np.full((1, 2), 0.7), np.zeros((1, 2)))
    times, positions = prefix(NOW, 0.02, History(0.5, PERIOD), resting, None, 0.2)
    assert times.tolist() == [0.0]
    assert (positions == 0.7).all()


def test_nothing_is_invented_where_nothing_is_known():
    times, positions = prefix(NOW, 0.02, History(0.5, PERIOD), None, None, 0.2)
    assert len(times) == len(positions) == 0


def test_history_keeps_what_it_should_however_long_it_runs():
    past = History(0.2, PERIOD)
    for k in range(200):
        past.add(k * PERIOD, np.array([k, -k]))
        times, positions = past.arrays()
        assert len(times) == min(k + 1, 12)
        assert times[-1] == k * PERIOD
        assert (np.diff(times) > 0).all()
        assert (positions[:, 0] == np.round(times / PERIOD)).all()


def test_history_is_interpolated_bounded_and_starts_anew_when_time_runs_back():
    past = history(0.2)
    assert past.at(NOW - 0.05) == pytest.approx(line([NOW - 0.05])[0])
    assert past.at(NOW) == pytest.approx([0.0, 0.2])
    assert past.at(NOW - 0.5) is None
    assert past.at(NOW + 0.001) is None
    assert len(past.arrays()[0]) == 12
    past.add(3.0, np.zeros(2))
    assert past.arrays()[0].tolist() == [3.0]
    past.clear()
    assert past.at(3.0) is None
