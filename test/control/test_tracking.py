import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.brake import stopping_distance
from vla_runtime.control.tracking import Tracker, direction

PERIOD = 0.02
NEVER = np.full(2, np.inf)
TIGHT = 1e-6


def follow(limits, plan_p, plan_v, position, velocity, reach=None, forward=NEVER, times=None):
    times = PERIOD * np.arange(len(plan_p)) if times is None else times
    tracker = Tracker(limits, PERIOD)
    survey = tracker.survey(times, plan_p, plan_v, direction(plan_v, forward))
    reach = limits.acceleration if reach is None else reach
    course = tracker.follow(np.asarray(position, float), np.asarray(velocity, float), survey, 0, len(plan_p) - 1, reach)
    return course, survey, tracker


def wave(rows, amplitude=0.4, rate=2.0):
    t = PERIOD * np.arange(rows)
    return (
        np.column_stack((amplitude * np.sin(rate * t), amplitude * np.cos(rate * t))),
        np.column_stack((amplitude * rate * np.cos(rate * t), -amplitude * rate * np.sin(rate * t))),
    )


def still(rows, value):
    return np.full((rows, 2), float(value)), np.zeros((rows, 2))


def test_on_a_plan_inside_the_limits_the_course_is_the_plan(make_limits):
    p, v = wave(30)
    course, survey, _ = follow(make_limits(), p, v, p[0], v[0])
    assert survey.free.all()
    assert (course.positions == p[1:]).all()
    assert (course.velocities == v[1:]).all()
    assert course.on_plan


def test_an_offset_is_worked_off_without_overshoot_and_exactly(make_limits):
    p, v = still(60, 0.5)
    course, _, _ = follow(make_limits(), p, v, [0.2, 0.9], [0.0, 0.0])
    assert course.on_plan
    assert course.positions[-1] == pytest.approx([0.5, 0.5], abs=1e-12)
    assert course.positions[:, 0].max() <= 0.5 + 1e-9
    assert course.positions[:, 1].min() >= 0.5 - 1e-9
    # 0.3 rad at 10 rad/s^2, there and back: 2 sqrt(0.3 / 10) s; a few steps more on the grid.
    arrived = np.argmax(np.abs(course.positions[:, 0] - 0.5) < 1e-9)
    assert arrived * PERIOD <= 2 * np.sqrt(0.3 / 10) + 4 * PERIOD


def test_a_moving_plan_is_caught_up_with(make_limits):
    p, v = wave(80)
    course, _, _ = follow(make_limits(), p, v, p[0] + [0.2, -0.2], v[0] * 0.0)
    assert course.on_plan
    assert course.positions[-1] == pytest.approx(p[-1], abs=1e-9)


def test_too_fast_a_plan_is_followed_at_the_limit_and_caught_up_with_later(make_limits):
    limits = make_limits(velocity=1.0)
    t = PERIOD * np.arange(120)
    ramp = np.clip(3.0 * (t - 0.2), 0.0, 0.9)
    p = np.column_stack((ramp, ramp))
    v = np.gradient(p, PERIOD, axis=0)
    course, _, _ = follow(limits, p, v, p[0], v[0])
    assert np.abs(course.velocities).max() <= 1.0 + 1e-9
    assert course.on_plan
    assert (np.diff(course.positions, axis=0) >= -1e-9).all()


def test_where_it_may_not_go_back_it_waits(make_limits):
    rows = 80
    p = np.column_stack((0.3 * PERIOD * np.arange(rows),) * 2)
    v = np.full((rows, 2), 0.3)
    course, _, _ = follow(make_limits(), p, v, [0.06, 0.06], [0.3, 0.3], forward=np.array([0.02, np.inf]))
    assert np.diff(course.positions[:, 0]).min() >= 0.0
    assert course.velocities[:, 0].min() >= -1e-12
    assert np.diff(course.positions[:, 1]).min() < -1e-3  # the other may
    assert course.on_plan


@given(st.integers(0, 2**31))
def test_whatever_the_plan_the_limits_are_kept_and_a_stop_always_fits(make_limits, seed):
    rng = np.random.default_rng(seed)
    limits = make_limits(
        lower=-1.0,
        upper=1.0,
        velocity=rng.uniform(0.5, 3.0),
        acceleration=rng.uniform(3.0, 20.0),
        jerk=rng.uniform(60.0, 400.0),
    )
    rows = 40
    kind = rng.integers(3)
    if kind == 0:
        p = np.clip(np.cumsum(rng.normal(0.0, 0.05, (rows, 2)), axis=0), -1.0, 1.0)
    elif kind == 1:
        p = np.sign(np.sin(np.arange(rows)[:, None] * rng.uniform(0.05, 0.6, 2)))
    else:
        p = np.clip(1.4 * np.sin(np.arange(rows)[:, None] * rng.uniform(0.02, 0.2, 2)), -1.0, 1.0)
    v = np.gradient(p, PERIOD, axis=0) * rng.uniform(0.0, 1.5)
    start = rng.uniform(-0.9, 0.9, 2)
    first = rng.uniform(0.004, 0.024)
    times = np.concatenate(([0.0], first + PERIOD * np.arange(rows - 1)))
    forward = np.array([0.02, np.inf])
    course, _, tracker = follow(limits, p, v, start, [0.0, 0.0], forward=forward, times=times)
    P, V = np.vstack((start, course.positions)), np.vstack((np.zeros(2), course.velocities))
    h = np.diff(times)[:, None]
    slope = np.diff(P, axis=0) / h
    begin = (6 * slope - 4 * V[:-1] - 2 * V[1:]) / h
    end = (-6 * slope + 2 * V[:-1] + 4 * V[1:]) / h
    assert (np.maximum(np.abs(begin), np.abs(end)) <= limits.acceleration * (1 + TIGHT) + 1e-5).all()
    assert (np.abs(V) <= limits.velocity * (1 + TIGHT)).all()
    assert (np.abs(slope) <= limits.velocity * (1 + TIGHT)).all()
    assert (limits.lower - TIGHT <= P).all()
    assert (limits.upper + TIGHT >= P).all()
    assert course.acceleration == pytest.approx(end[-1], abs=1e-4)


def test_a_joint_found_beyond_its_limit_comes_back_and_goes_no_farther(make_limits):
    limits = make_limits(lower=-1.0, upper=1.0)
    p, v = still(60, 0.95)
    course, _, _ = follow(limits, p, v, [1.05, -1.02], [0.0, 0.0])
    assert course.positions[:, 0].max() <= 1.05
    assert course.positions[:, 1].min() >= -1.02
    assert course.positions[-1] == pytest.approx([0.95, 0.95], abs=0.05)


def test_it_can_come_to_rest_on_a_limit(make_limits):
    limits = make_limits(lower=-1.0, upper=1.0)
    p, v = still(100, 1.0)
    course, _, _ = follow(limits, p, v, [0.0, 0.9], [0.0, 0.0])
    assert course.positions.max() <= 1.0 + 1e-9
    assert course.positions[-1] == pytest.approx([1.0, 1.0], abs=0.005)


def test_steps_that_break_a_limit_are_not_free(make_limits):
    limits = make_limits(velocity=1.0, acceleration=10.0)
    for p, v in (
        (np.array([[0.0, 0.0], [0.03, 0.0]]), np.full((2, 2), [1.5, 0.0])),  # too fast
        (np.array([[0.0, 0.0], [0.01, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])),  # too strong
    ):
        survey = Tracker(limits, PERIOD).survey(np.array([0.0, PERIOD]), p, v, np.zeros((1, 2)))
        assert survey.free.tolist() == [[False, True]]


def test_the_direction_of_a_plan():
    v = np.array([[0.5, -0.5], [0.1, -0.01], [0.1, -0.5], [-0.1, -0.5]])
    assert direction(v, np.array([0.05, 0.05])).tolist() == [[1, 0], [1, 0], [0, -1]]
    assert not direction(v, NEVER).any()


@given(st.integers(0, 2**31))
def test_the_coarse_way_is_never_too_short(make_limits, seed):
    rng = np.random.default_rng(seed)
    limits = make_limits(acceleration=rng.uniform(1.0, 30.0), jerk=rng.uniform(20.0, 2000.0))
    v, a = rng.uniform(-2.0, 2.0, (20, 2)), rng.uniform(-1.0, 1.0, (20, 2)) * limits.acceleration
    coarse = Tracker(limits, PERIOD)._coarse_way(np.abs(v), np.abs(a))
    for i in range(20):
        for j in range(2):
            for side in (1.0, -1.0):
                way = stopping_distance(side * v[i, j], side * a[i, j], limits.acceleration[j], limits.jerk[j], PERIOD)
                assert way <= coarse[i, j] + 1e-12
