"""The gate refuses what the arm must not do, and says which joint, which value and which limit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from vla_runtime.control.gate import Gate, GateRefusal
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()
GATE = Gate(LIMITS, watchdog_settings())
NAMES = LIMITS.joint_names


def ramp(start: float = 1.0, speed: float = 0.5, seconds: float = 0.4) -> Trajectory:
    """All joints move on at `speed` and stop with constant deceleration."""
    times = np.linspace(0.0, seconds, 21)
    velocity = np.where(times < seconds / 2, speed, speed * 2.0 * (1.0 - times / seconds))
    position = np.concatenate([[0.0], np.cumsum(0.5 * (velocity[1:] + velocity[:-1]) * np.diff(times))])
    velocities = np.repeat(velocity[:, None], 6, axis=1)
    velocities[-1] = 0.0
    return Trajectory(start, NAMES, times, np.repeat(position[:, None], 6, axis=1), velocities, "a:1")


def put(trajectory: Trajectory, what: str, row: int, joint: int, value: float) -> Trajectory:
    values = getattr(trajectory, what).copy()
    values[row, joint] = value
    return replace(trajectory, **{what: values})


def form(trajectory: Trajectory, now: float = 1.0) -> GateRefusal | None:
    return GATE.form(now, trajectory, 0.04)


def test_a_sound_trajectory_passes():
    assert form(ramp()) is None
    assert GATE.limits_kept(ramp()) is None
    assert GATE.continuous(ramp(), ramp()) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["positions", "velocities"])
@pytest.mark.parametrize(("row", "joint"), [(0, 0), (7, 3), (20, 5)])
def test_one_number_that_is_none_refuses_the_whole(value, what, row, joint):
    refusal = form(put(ramp(), what, row, joint, value))
    assert refusal.reason == "not_finite"
    assert NAMES[joint] in refusal.text and str(row) in refusal.text and str(value) in refusal.text


def test_a_moving_end_is_refused_by_name():
    refusal = form(put(ramp(), "velocities", -1, 2, 4e-7))
    assert refusal.reason == "form" and "elbow" in refusal.text


def test_points_too_close_or_out_of_order_are_refused():
    base = ramp()
    for gap in (0.0, -0.01, 0.003):
        times = base.times.copy()
        times[5] = times[4] + gap
        assert form(replace(base, times=times)).reason == "form"


def test_other_names_or_another_order_are_refused_with_both_lists():
    for names in (("x", *NAMES[1:]), NAMES[::-1]):
        refusal = form(replace(ramp(), joint_names=names))
        assert refusal.reason == "names" and str(list(names)) in refusal.text and str(list(NAMES)) in refusal.text


@pytest.mark.parametrize(("age", "reason"), [(0.05, "late"), (100.0, "late"), (-0.01, "future"), (-1e6, "future")])
def test_a_stamp_that_is_not_now_is_refused(age, reason):
    assert form(ramp(), 1.0 + age).reason == reason


def test_a_stamp_that_is_no_number_is_refused():
    assert form(replace(ramp(), start=float("nan"))).reason == "future"


def test_nothing_left_is_refused():
    short = replace(ramp(), times=ramp().times / 20.0)  # ends 20 ms after its stamp
    assert GATE.form(1.03, short, 0.04).reason in ("late", "form")


@pytest.mark.parametrize(
    ("what", "value", "reason", "figures"),
    [
        ("positions", 57.3, "acceleration", ("flex", "limit 10)")),
        ("positions", 0.2, "acceleration", ("flex", "limit 10)")),
        ("velocities", 2.0, "acceleration", ("flex", "limit 10)")),
    ],
)
def test_a_spike_is_refused_by_joint_value_and_limit(what, value, reason, figures):
    refusal = GATE.limits_kept(put(ramp(), what, 9, 3, value))
    assert refusal.reason == reason
    assert all(figure in refusal.text for figure in figures)


def test_speed_between_two_slow_points_is_seen():
    """Both points rest, the way between them does not: 1.5 times the mean speed, in the middle."""
    h = 2.0
    positions = np.zeros((2, 6))
    positions[:, 1] = (-1.9, -1.9 + 2.05 * h * 0.98)  # mean 2.0 rad/s, peak 3.01
    trajectory = Trajectory(0.0, NAMES, np.array([0.0, h]), positions, np.zeros((2, 6)))
    limits = replace_limits(acceleration=100.0, upper=9.0)
    refusal = Gate(limits, watchdog_settings(limit_tolerance=0.0)).limits_kept(trajectory)
    assert refusal.reason == "velocity" and "lift reaches 3.01" in refusal.text and "(limit 3)" in refusal.text


def test_a_position_between_two_allowed_points_is_seen():
    """Both points are inside; the cubic between them swings past the limit."""
    velocities = np.zeros((3, 6))
    velocities[0, 0], velocities[1, 0] = 1.0, -1.0
    positions = np.full((3, 6), 1.9)
    positions[2] = 1.4
    trajectory = Trajectory(0.0, NAMES, np.array([0.0, 0.6, 1.6]), positions, velocities)
    refusal = GATE.limits_kept(trajectory)
    assert refusal.reason == "position" and "pan reaches 2.05" in refusal.text and "above its limit 2" in refusal.text


def test_an_arm_parked_outside_may_come_in_but_go_no_further_out():
    outside = replace(ramp(), positions=2.05 - ramp().positions, velocities=-ramp().velocities)
    assert GATE.limits_kept(outside) is None
    further = replace(ramp(), positions=2.05 + ramp().positions)
    assert GATE.limits_kept(further).reason == "position"


def replace_limits(**values: float):
    return replace(LIMITS, **{name: np.full(6, value) for name, value in values.items()})


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 3.0))
def test_verdicts_agree_with_dense_sampling(seed, size):
    """Against SciPy's spline, sampled a thousand times between each pair of points."""
    rng = np.random.default_rng(seed)
    times = np.concatenate([[0.0], np.cumsum(rng.uniform(0.05, 0.6, 5))])
    positions, velocities = rng.uniform(-size, size, (6, 6)), rng.uniform(-size, size, (6, 6))
    velocities[-1] = 0.0
    trajectory = Trajectory(0.0, NAMES, times, positions, velocities)
    t = np.unique(np.concatenate([np.linspace(a, b, 1000) for a, b in zip(times, times[1:])]))
    spline = CubicHermiteSpline(times, positions, velocities)
    # Just inside of each point, where the acceleration jumps.
    inner = np.concatenate([np.linspace(a + 1e-9, b - 1e-9, 1000) for a, b in zip(times, times[1:])])
    worst = {
        "acceleration": np.abs(spline(inner, 2)).max(axis=0),
        "velocity": np.abs(spline(t, 1)).max(axis=0),
        "position": np.abs(spline(t)).max(axis=0),
    }
    for reason in worst:  # each rule alone, its limit just above and just below what is really reached
        open_wide = {"acceleration": 1e9, "velocity": 1e9, "upper": 1e9, "lower": -1e9}
        for factor, passes in ((1.001, True), (0.999, False)):
            value = worst[reason] * factor
            if reason == "position":
                if (np.abs(positions[0]) > value).any():
                    continue  # it begins outside: another rule
                bounds = {**open_wide, "upper": value, "lower": -value}
            else:
                bounds = {**open_wide, reason: value}
            limits = replace(LIMITS, **{k: np.broadcast_to(v, 6).astype(float) for k, v in bounds.items()})
            gate = Gate(limits, watchdog_settings(limit_tolerance=0.0, position_tolerance_rad=0.0))
            refusal = gate.limits_kept(trajectory)
            assert (refusal is None) == passes
            assert passes or refusal.reason == reason


@pytest.mark.parametrize(("jump", "passes"), [(0.0, True), (0.09, True), (0.1, False), (0.5, False)])
def test_a_jump_is_refused_by_joint_and_both_values(jump, passes):
    """Less than the velocity limit's way in one and a half periods (0.09 rad) may be led in; more is a jump."""
    moved = put(ramp(), "positions", 0, 4, jump)
    refusal = GATE.continuous(moved, ramp())
    assert (refusal is None) == passes
    if not passes:
        assert refusal.reason == "jump" and "roll" in refusal.text and f" to {jump:g} rad" in refusal.text


def test_a_jump_of_velocity_is_refused():
    refusal = GATE.continuous(put(ramp(), "velocities", 0, 1, 2.0), ramp())
    assert refusal.reason == "jump" and "rad/s" in refusal.text and "lift" in refusal.text


def test_the_first_command_begins_near_the_measured_state():
    assert GATE.near(ramp(), np.zeros(6)) is None
    measured = np.zeros(6)
    measured[2] = 0.061  # one period at 3 rad/s is 0.06
    refusal = GATE.near(ramp(), measured)
    assert refusal.reason == "jump" and "elbow" in refusal.text and "0.061" in refusal.text


def test_a_gripper_that_holds_something_may_be_commanded_further_than_it_is_measured():
    """Only where nothing was commanded yet, as after a restart of the watchdog: the executor saw the last command."""
    gate = Gate(replace(LIMITS, discrete=np.arange(6) == 5), watchdog_settings())
    measured = np.zeros(6)
    measured[5] = 0.2
    assert gate.near(ramp(), measured) is None
    measured[4] = 0.2
    assert "elbow" not in gate.near(ramp(), measured).text and gate.near(ramp(), measured).reason == "jump"
