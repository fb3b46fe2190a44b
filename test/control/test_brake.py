import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruckig import ControlInterface, InputParameter, Ruckig, Synchronization
from ruckig import Trajectory as Profile

from vla_runtime.control.brake import brake, stopping_distance
from vla_runtime.control.limits import Limits

N = 8
STEPS = st.sampled_from([0.005, 0.01, 0.02, 0.04])


def limits_of(velocity, acceleration, jerk):
    n = len(acceleration)
    names = tuple(f"j{i}" for i in range(n))
    return Limits(names, np.full(n, -9.0), np.full(n, 9.0), velocity, acceleration, jerk)


def states(seed):
    """Limits and states of motion of all kinds: fast, slow, nearly stopped, at the edge of turning round, at rest."""
    rng = np.random.default_rng(seed)
    acceleration = rng.uniform(1.0, 30.0, N)
    jerk = acceleration * 10 ** rng.uniform(0.3, 2.3, N)
    velocity = rng.uniform(0.5, 4.0, N)
    v = velocity * rng.uniform(-1.0, 1.0, N) * rng.choice([1.0, 1.0, 0.1, 0.01, 0.0], N)
    a = acceleration * rng.uniform(-1.0, 1.0, N) * rng.choice([1.0, 1.0, 0.1, 0.0], N)
    edge = rng.random(N) < 0.3
    v = np.where(edge, -a * np.abs(a) / (2.0 * jerk) * rng.uniform(0.5, 1.5, N), v)
    return limits_of(velocity, acceleration, jerk), rng.normal(size=N), v, a


@given(st.integers(0, 2**31), STEPS)
@settings(max_examples=200, deadline=None)
def test_it_stops_exactly_within_acceleration_and_jerk(seed, h):
    limits, p, v, a = states(seed)
    stop = brake(p, v, a, limits, h)
    assert (stop.positions[0] == p).all()
    assert (stop.velocities[0] == v).all()
    assert (stop.accelerations[0] == a).all()
    assert (stop.velocities[-1] == 0.0).all()
    assert (stop.accelerations[-1] == 0.0).all()
    assert np.diff(stop.times) == pytest.approx(h)
    assert (np.abs(stop.accelerations) <= limits.acceleration * (1 + 1e-9)).all()
    assert (np.abs(np.diff(stop.accelerations, axis=0)) <= limits.jerk * h * (1 + 1e-9)).all()


@given(st.integers(0, 2**31), STEPS)
@settings(max_examples=200, deadline=None)
def test_the_cubics_that_a_controller_draws_are_the_stop_itself(seed, h):
    limits, p, v, a = states(seed)
    stop = brake(p, v, a, limits, h)
    if len(stop.times) == 1:
        return
    p0, p1, v0, v1 = stop.positions[:-1], stop.positions[1:], stop.velocities[:-1], stop.velocities[1:]
    begins = (6.0 * (p1 - p0) / h - 4.0 * v0 - 2.0 * v1) / h
    ends = (-6.0 * (p1 - p0) / h + 2.0 * v0 + 4.0 * v1) / h
    tolerance = 1e-6 * limits.acceleration
    assert (np.abs(begins - stop.accelerations[:-1]) <= tolerance).all()
    assert (np.abs(ends - stop.accelerations[1:]) <= tolerance).all()


@given(st.integers(0, 2**31), STEPS)
@settings(max_examples=150, deadline=None)
def test_it_takes_at_most_three_steps_more_than_the_fastest_stop_there_is(seed, h):
    limits, p, v, a = states(seed)
    stop = brake(p, v, a, limits, h)
    fastest = ruckig_durations(limits, v, a)
    moving = (stop.velocities != 0.0) | (stop.accelerations != 0.0)
    steps = np.array([np.flatnonzero(moving[:, j])[-1] + 1 if moving[:, j].any() else 0 for j in range(N)])
    assert (steps * h >= fastest - 1e-6).all()
    assert (steps * h <= fastest + 3 * h + 1e-6).all()


def ruckig_durations(limits, v, a):
    profile, given_ = Profile(N), InputParameter(N)
    given_.control_interface, given_.synchronization = ControlInterface.Velocity, Synchronization.No
    given_.current_velocity, given_.current_acceleration = v.tolist(), a.tolist()
    given_.max_velocity, given_.max_acceleration = limits.velocity.tolist(), limits.acceleration.tolist()
    given_.max_jerk = limits.jerk.tolist()
    Ruckig(N).calculate(given_, profile)
    return np.array(profile.independent_min_durations)


@given(st.integers(0, 2**31), STEPS)
@settings(max_examples=300, deadline=None)
def test_the_stopping_distance_is_never_exceeded(seed, h):
    limits, p, v, a = states(seed)
    stop = brake(p, v, a, limits, h)
    onward = (stop.positions - p).max(axis=0)
    back = (p - stop.positions).max(axis=0)
    for j in range(N):
        most, jerk = limits.acceleration[j], limits.jerk[j]
        assert onward[j] <= stopping_distance(v[j], a[j], most, jerk, h) + 1e-12
        assert back[j] <= stopping_distance(-v[j], -a[j], most, jerk, h) + 1e-12


def test_the_stopping_distance_is_the_known_one_where_the_grid_is_fine():
    # From rest of acceleration at 1 rad/s: v (v / a + a / j) / 2.
    assert stopping_distance(1.0, 0.0, 5.0, 100.0, 1e-9) == pytest.approx(0.5 * (1 / 5 + 5 / 100))
    assert stopping_distance(-1.0, 0.0, 5.0, 100.0, 1e-9) == 0.0


def test_at_rest_there_is_nothing_to_do():
    limits, p, _, _ = states(1)
    stop = brake(p, np.zeros(N), np.zeros(N), limits, 0.02)
    assert stop.times.tolist() == [0.0]
    assert (stop.positions == p).all()


def test_an_acceleration_beyond_the_limit_is_led_back():
    limits = limits_of(np.array([2.0]), np.array([5.0]), np.array([100.0]))
    stop = brake(np.zeros(1), np.array([1.0]), np.array([9.0]), limits, 0.02)
    assert (np.abs(np.diff(stop.accelerations[:, 0])) <= 2.0 + 1e-9).all()
    assert stop.accelerations[:, 0].min() >= -5.0 - 1e-9
    assert stop.velocities[-1, 0] == 0.0


@pytest.mark.parametrize("broken", range(3))
def test_a_state_that_is_not_finite_is_refused(broken):
    limits = limits_of(np.array([2.0]), np.array([5.0]), np.array([100.0]))
    state = [np.zeros(1), np.zeros(1), np.zeros(1)]
    state[broken] = np.array([np.nan])
    with pytest.raises(ValueError, match="not finite"):
        brake(*state, limits, 0.02)
    with pytest.raises(ValueError, match="step_s"):
        brake(np.zeros(1), np.zeros(1), np.zeros(1), limits, 0.0)
