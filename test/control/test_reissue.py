"""Saying a motion again moves nothing; bending it onto a new start keeps the limits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.control.brake import brake
from vla_runtime.control.motion import MotionState, move
from vla_runtime.control.reissue import REST_S, joined, led, rebased, windowed
from vla_runtime.control.tracking import Tracker
from vla_runtime.control.trajectory import MIN_SPACING_S, Trajectory
from vla_runtime.sim.command_checker import CommandChecker
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()


def way(seed: int, speed: float = 0.9, start: float = 0.0) -> Trajectory:
    rng = np.random.default_rng(seed)
    state = MotionState(rng.uniform(-1.0, 1.0, 6), np.zeros(6), np.zeros(6))
    goal = rng.uniform(-1.5, 1.5, 6)
    profile = move(state, goal, LIMITS.velocity * speed, LIMITS.acceleration * speed, LIMITS.jerk * speed)
    return Trajectory(start, LIMITS.joint_names, profile.times, profile.positions, profile.velocities)


def judged(*commands: Trajectory) -> list:
    checker = CommandChecker(LIMITS)
    for command in commands:
        checker.check(command.start, command, due=True)
    return checker.violations


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.0, 0.0199), st.floats(0.017, 0.023))
def test_repeating_a_motion_keeps_every_promise(seed, phase, period):
    """Re-based 50 times a second, at any phase to its points, a motion stays itself and inside the limits."""
    original = way(seed)
    commands, made = [], original
    for tick in range(int(original.end / period) + 3):
        made = rebased(made, phase + tick * period)
        commands.append(made)
        assert np.abs(made.positions[0] - original.sample(made.start)[0]).max() < 2e-3
    assert judged(*commands) == []
    assert np.all(commands[-1].velocities == 0.0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.floats(0.0, 1.2))
def test_what_is_left_is_the_same_curve(seed, share):
    original = way(seed)
    now = share * original.end
    left = rebased(original, now)
    assert left.start == now and left.times[0] == 0.0
    assert np.diff(left.times).min() >= MIN_SPACING_S - 1e-9
    assert left.times[-1] >= REST_S - 1e-9
    assert np.all(left.velocities[-1] == 0.0)
    for t in np.linspace(now + 2 * MIN_SPACING_S, max(original.end, now) + 0.1, 40):
        position, velocity = original.sample(t)
        assert np.abs(left.sample(t)[0] - position).max() < 1e-4  # where a point had to go: its acceleration averaged
        assert np.abs(left.sample(t)[1] - velocity).max() < 2e-2


def test_an_ended_motion_is_held_with_a_future():
    original = way(3)
    held = rebased(original, original.end + 100.0)
    assert np.all(held.velocities == 0.0)
    assert np.all(held.positions == original.positions[-1])
    assert held.end > held.start + 0.09


def test_the_brake_is_still_marked():
    original = way(4)
    marked = Trajectory(0.0, LIMITS.joint_names, original.times, original.positions, original.velocities, "p", 5)
    now = 0.5 * (original.times[3] + original.times[4])
    left = rebased(marked, now)
    assert left.plan_id == "p"
    assert left.start + left.times[left.brake_from] == original.times[5]
    assert rebased(marked, original.times[7] + 1e-3).brake_from == 0


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.floats(0.0, 0.02), st.floats(0.0, 0.1))
def test_joining_starts_exactly_and_fades(seed, offset, rate):
    rng = np.random.default_rng(seed)
    target = way(seed, 0.5)
    position = target.positions[0] + offset * rng.uniform(-1.0, 1.0, 6)
    velocity = target.velocities[0] + rate * rng.uniform(-1.0, 1.0, 6)
    made = joined(target, position, velocity, 0.1)
    assert np.allclose(made.positions[0], position, rtol=0.0, atol=2e-8)
    assert np.allclose(made.velocities[0], velocity, rtol=0.0, atol=2e-8)
    changed = np.flatnonzero(np.abs(made.positions - target.positions).max(axis=1))
    assert made.times[changed].max(initial=0.0) <= max(0.1, target.times[1])
    assert np.all(made.velocities[-1] == 0.0)


def test_joining_what_fits_changes_nothing():
    target = way(5)
    assert joined(target, target.positions[0], target.velocities[0], 0.1) is target


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.0, 0.06), st.floats(0.0, 0.4))
def test_leading_keeps_the_limits_where_bending_cannot(seed, offset, rate):
    """Onto a motion that uses the limits up: the way onto it still keeps them."""
    rng = np.random.default_rng(seed)
    sparse = way(seed, 0.95)
    times = np.arange(0.0, 0.21, 0.02)
    rows = [sparse.sample(t) for t in times]
    stop = brake(rows[-1][0], rows[-1][1], sparse.acceleration(0.2), LIMITS, 0.02)
    target = Trajectory(
        0.0,
        LIMITS.joint_names,
        np.concatenate([times, 0.2 + stop.times[1:]]),
        np.concatenate([[p for p, _ in rows], stop.positions[1:]]),
        np.concatenate([[v for _, v in rows[:-1]], stop.velocities])
        if len(stop.times) > 1
        else np.array([v for _, v in rows]),
    )
    position = target.positions[0] + offset * rng.uniform(-1.0, 1.0, 6)
    velocity = target.velocities[0] + rate * rng.uniform(-1.0, 1.0, 6)
    made = rebased(led(target, position, velocity, 0.2, LIMITS, Tracker(LIMITS, 0.02), 0.02), 0.0)
    assert np.all(made.positions[0] == position) and np.all(made.velocities[0] == velocity)
    assert judged(made) == []


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.0, 0.0199))
def test_a_window_of_a_long_motion_ends_in_a_stop(seed, phase):
    motion = way(seed, 0.3)
    commands = []
    for tick in range(int(motion.end / 0.02) + 3):
        motion = rebased(motion, phase + tick * 0.02)
        commands.append(windowed(motion, 0.2, LIMITS, 0.01))
    assert judged(*commands) == []
    assert max(command.times[-1] for command in commands) < 0.2 + 0.6  # window and brake, however long the motion
    assert np.abs(commands[-1].positions[-1] - way(seed, 0.3).positions[-1]).max() < 2e-3
