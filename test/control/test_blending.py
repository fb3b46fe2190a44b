import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.blending import Fade, PlanStack, fade_duration
from vla_runtime.control.resample import Grid, resample

GRID = Grid(0.0, 0.02)
DISCRETE = np.array([False, True])


def plan(name, t0, value, rows=40):
    return resample(name, t0, 0.02, np.full((rows, 2), float(value)), GRID)


def weights(count, m):
    """ACT's: exp(-m i), i = 0 the oldest, normalised."""
    unnormalised = np.exp(-m * np.arange(count))
    return unnormalised / unnormalised.sum()


@pytest.mark.parametrize("which", range(4))
def test_ensemble_weights_are_acts(which):
    stack = PlanStack(DISCRETE, True, 0.01, 8)
    for i in range(4):
        stack.push(plan(str(i), 0.02 * i, 1.0 if i == which else 0.0))
    expected = [0.253762, 0.251237, 0.248738, 0.246263][which]
    assert stack.followed().positions[5, 0] == pytest.approx(expected, abs=1e-6)


def test_an_ensemble_is_the_weighted_mean_of_the_plans_that_cover_a_point():
    stack = PlanStack(DISCRETE, True, 0.5, 8)
    for i, value in enumerate([1.0, 2.0, 4.0]):
        stack.push(plan(str(i), 0.2 * i, value))
    followed = stack.followed()
    assert followed.plan_id == "2"
    assert followed.first == 20
    # Plans 0, 1, 2 cover to points 39, 49, 59.
    expected = {
        25: weights(3, 0.5) @ [1.0, 2.0, 4.0],
        45: weights(2, 0.5) @ [2.0, 4.0],
        55: 4.0,
    }
    for k, value in expected.items():
        assert followed.positions[k - followed.first, 0] == pytest.approx(value)
    assert (followed.positions[:, 1] == 4.0).all()  # discrete: the newest, never a mean


def test_an_ensemble_has_the_mean_velocity_too():
    stack = PlanStack(DISCRETE, True, 0.0, 8)
    for slope in (1.0, 3.0):
        stack.push(resample("p", 0.0, 0.02, np.outer(0.02 * np.arange(40), [slope, slope]), GRID))
    assert stack.followed().velocities[:, 0] == pytest.approx(2.0)
    assert stack.followed().velocities[:, 1] == pytest.approx(3.0)


def test_only_an_ensemble_keeps_older_plans_and_no_more_than_it_may():
    for ensemble, kept in ((False, 1), (True, 3)):
        stack = PlanStack(DISCRETE, ensemble, 0.1, 3)
        for i in range(6):
            stack.push(plan(str(i), 0.02 * i, i))
        assert [p.plan_id for p in stack.plans] == ["3", "4", "5"][-kept:]
    stack.push(plan("late", 100.0, 1.0))
    assert [p.plan_id for p in stack.plans] == ["late"]
    stack.clear()
    assert stack.plans == ()


@given(st.integers(0, 10000), st.floats(0.05, 1.0))
def test_a_fade_begins_at_the_offset_with_its_rate_and_ends_at_nothing(seed, duration):
    rng = np.random.default_rng(seed)
    offset, rate = rng.normal(size=2), rng.normal(size=2)
    fade = Fade(10.0, offset, rate, np.full(2, duration))
    t = np.linspace(10.0, 10.0 + duration, 501)
    added, speed = fade.at(t)
    assert added[0] == pytest.approx(offset)
    assert speed[0] == pytest.approx(rate)
    assert added[-1] == pytest.approx([0, 0], abs=1e-12)
    assert speed[-1] == pytest.approx([0, 0], abs=1e-9)
    assert np.gradient(added, t, axis=0)[1:-1] == pytest.approx(speed[1:-1], abs=1e-2 * np.abs(speed).max())
    beyond = fade.at(np.array([fade.end + 1.0]))
    assert beyond[0] == pytest.approx(0.0)
    assert beyond[1] == pytest.approx(0.0)


def test_a_fade_of_no_duration_adds_nothing():
    fade = Fade(10.0, np.ones(2), np.ones(2), np.array([0.0, 0.4]))
    added, speed = fade.at(np.array([10.0, 10.1]))
    assert (added[:, 0] == 0).all()
    assert (speed[:, 0] == 0).all()
    assert added[0, 1] == 1.0
    assert fade.end == pytest.approx(10.4)


@given(st.integers(0, 10000))
def test_fades_keep_their_acceleration(seed):
    rng = np.random.default_rng(seed)
    offset, rate = rng.normal(size=3) * 0.3, rng.normal(size=3)
    most = rng.uniform(1.0, 10.0, 3)
    durations = np.array([fade_duration(*joint, 0.1, m, 2.0) for *joint, m in zip(offset, rate, most)])
    for j in range(3):
        fade = Fade(0.0, offset[j : j + 1], rate[j : j + 1], durations[j : j + 1])
        t = np.linspace(0.0, durations[j], 1001)
        acceleration = np.diff(fade.at(t)[1][:, 0]) / np.diff(t)
        assert np.abs(acceleration).max() <= most[j] * 1.001


def test_a_small_offset_fades_in_the_time_that_was_asked_for():
    assert fade_duration(0.01, 0.0, 0.3, 5.0, 2.0) == pytest.approx(0.3)


@given(st.integers(0, 10000), st.floats(0.05, 1.0))
def test_an_offset_that_shrinks_already_does_not_overshoot(seed, seconds):
    rng = np.random.default_rng(seed)
    offset = rng.uniform(0.01, 0.3, 3)
    rate = -rng.uniform(0.0, 1.0, 3) * np.sqrt(1.4 * 5.0 * offset)  # slow enough to be stopped at 5 rad/s^2
    durations = np.array([fade_duration(*joint, seconds, 5.0, 9.0) for joint in zip(offset, rate)])
    fade = Fade(0.0, offset, rate, durations)
    added, _ = fade.at(np.linspace(0.0, durations.max(), 1001))
    assert added.min() >= -1e-9


@given(st.integers(0, 10000), st.floats(0.1, 0.9))
def test_a_fade_begun_anew_on_the_way_is_the_same_curve(seed, share):
    rng = np.random.default_rng(seed)
    offset, rate = rng.normal(size=2), rng.normal(size=2)
    fade = Fade(0.0, offset, rate, np.full(2, 0.5))
    at = 0.5 * share
    added, speed = (rows[0] for rows in fade.at(np.array([at])))
    again = Fade(at, added, speed, fade.ends - at)
    t = np.linspace(at, 0.5, 20)
    assert again.at(t)[0] == pytest.approx(fade.at(t)[0], abs=1e-9)
