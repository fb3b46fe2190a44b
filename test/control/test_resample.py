import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from vla_runtime.control.resample import Grid, resample, smooth

GRID = Grid(7.01, 0.02)


def test_grid_points_forgive_rounding():
    grid = Grid(0.1, 0.02)
    for k in range(-5, 2000):
        assert grid.at_or_after(grid.time(k)) == k
        assert grid.at_or_before(grid.time(k)) == k
        assert grid.at_or_after(grid.time(k) + 0.005) == k + 1
        assert grid.at_or_before(grid.time(k) - 0.005) == k - 1


@given(st.integers(0, 2**31), st.floats(0.005, 0.2), st.integers(2, 40))
def test_the_plan_goes_through_its_waypoints_and_never_leaves_their_range(seed, dt, horizon):
    rng = np.random.default_rng(seed)
    waypoints = rng.normal(size=(horizon, 3))
    t0 = 50.0 + rng.uniform()
    plan = resample("p", t0, dt, waypoints, GRID)
    if plan is None:
        assert (horizon - 1) * dt < 0.02
        return
    times = GRID.origin + GRID.period * np.arange(plan.first, plan.last + 1)
    assert times[0] >= t0 - 1e-6
    assert times[-1] <= plan.end + 1e-6
    at = np.clip((times - t0) / dt, 0.0, horizon - 1.0)
    i = np.minimum(at.astype(int), horizon - 2)
    low = np.minimum(waypoints[i], waypoints[i + 1])
    high = np.maximum(waypoints[i], waypoints[i + 1])
    assert (plan.positions >= low - 1e-9).all()
    assert (plan.positions <= high + 1e-9).all()
    on_waypoint = np.abs(at - np.round(at)) < 1e-9
    assert plan.positions[on_waypoint] == pytest.approx(waypoints[np.round(at[on_waypoint]).astype(int)], abs=1e-6)


def test_what_rises_keeps_rising():
    waypoints = np.cumsum(np.array([0.0, 0.5, 0.0, 0.01, 0.3, 0.0, 0.2]))[:, None]
    plan = resample("p", 10.0, 0.13, waypoints, GRID)
    assert (np.diff(plan.positions, axis=0) >= -1e-12).all()
    assert (plan.velocities >= -1e-12).all()


def test_a_straight_line_has_its_own_velocity():
    plan = resample("p", 10.0, 0.1, np.linspace(0.0, 2.0, 21)[:, None], GRID)
    assert plan.velocities == pytest.approx(1.0)


@given(st.integers(0, 1000))
def test_between_grid_points_it_is_the_cubic_that_a_controller_draws(seed):
    rng = np.random.default_rng(seed)
    plan = resample("p", 10.0, 0.1, rng.normal(size=(12, 2)), GRID)
    times = GRID.origin + GRID.period * np.arange(plan.first, plan.last + 1)
    spline = CubicHermiteSpline(times, plan.positions, plan.velocities)
    for t in rng.uniform(times[0], times[-1], 10):
        position, velocity = plan.at(t)
        assert position == pytest.approx(spline(t), abs=1e-9)
        assert velocity == pytest.approx(spline(t, 1), abs=1e-7)


def test_outside_its_rows_it_goes_on_straight():
    plan = resample("p", 10.0, 0.1, np.linspace(0.0, 2.0, 21)[:, None], GRID)
    assert plan.at(10.0)[0] == pytest.approx(0.0, abs=1e-9)
    assert plan.at(10.0)[1] == pytest.approx(1.0)


def test_a_plan_shorter_than_the_grid_is_none():
    assert resample("p", 7.011, 0.001, np.zeros((3, 1)), GRID) is None


def test_smoothing_keeps_lines_ends_and_what_is_not_mixed():
    line = np.column_stack((np.linspace(0.0, 1.0, 30), np.linspace(2.0, -1.0, 30)))
    both = np.array([True, True])
    assert smooth(line, 0.02, 0.05, both) == pytest.approx(line)
    rough = line + np.random.default_rng(0).normal(0.0, 0.05, line.shape)
    smoothed = smooth(rough, 0.02, 0.05, np.array([True, False]))
    assert np.abs(np.diff(smoothed[:, 0], 2)).max() < 0.3 * np.abs(np.diff(rough[:, 0], 2)).max()
    assert (smoothed[:, 1] == rough[:, 1]).all()
    assert smoothed[[0, -1], 0] == pytest.approx(rough[[0, -1], 0])


@given(st.integers(0, 1000), st.integers(2, 40), st.floats(0.001, 1.0))
def test_smoothing_keeps_what_rises_rising(seed, horizon, seconds):
    rising = np.cumsum(np.random.default_rng(seed).uniform(0.0, 1.0, (horizon, 2)), axis=0)
    smoothed = smooth(rising, 0.05, seconds, np.array([True, True]))
    assert smoothed.shape == rising.shape
    assert (np.diff(smoothed, axis=0) >= -1e-9).all()
