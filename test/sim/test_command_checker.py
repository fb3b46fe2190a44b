"""The judge of commands finds every broken promise that is put in front of it, and nothing in what is sound."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

from vla_runtime.control.brake import brake
from vla_runtime.control.limits import Limits
from vla_runtime.control.reissue import rebased
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.sim.command_checker import CommandChecker, cubics
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()


def stop(now: float = 1.0, limits: Limits = LIMITS) -> Trajectory:
    whole = brake(np.zeros(6), np.full(6, 1.5), np.zeros(6), limits, 0.02)
    return Trajectory(now, LIMITS.joint_names, whole.times, whole.positions, whole.velocities)


def rules(*commands, jerk: bool = True, last: Trajectory | None = None) -> set[str]:
    checker = CommandChecker(LIMITS)
    checker.last = last
    for command in commands:
        checker.check(command.start, command, due=True, jerk_limited=jerk)
    return {violation.rule for violation in checker.violations}


def changed(what: str, row: int, value: float) -> Trajectory:
    values = getattr(stop(), what).copy()
    values[row, 2] = value
    return replace(stop(), **{what: values})


def test_the_cubics_are_those_of_scipy():
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.uniform(0.004, 0.05, 20))
    positions, velocities = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))
    found = cubics(np.diff(times)[:, None], positions, velocities)
    wanted = CubicHermiteSpline(times, positions, velocities).c
    assert np.allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_sound_stream_passes():
    first = stop()
    assert rules(*(rebased(first, 1.0 + 0.02 * tick) for tick in range(40))) == set()


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (changed("positions", 3, np.nan), "finite"),
        (changed("velocities", -1, 1e-9), "rest"),
        (replace(stop(), times=stop().times * 0.1), "times"),
        (replace(stop(), joint_names=LIMITS.joint_names[::-1]), "names"),
        (changed("positions", 3, 0.3), "acceleration"),
        (replace(stop(), times=stop().times * 0.45, velocities=stop().velocities / 0.45), "velocity"),
        (replace(stop(), positions=stop().positions + 1.9), "position"),
        (stop(limits=LIMITS.scaled(jerk=5.0)), "jerk"),
    ],
)
def test_a_broken_rule_is_found(command, rule):
    assert rule in rules(command)


def test_silence_and_a_wrong_stamp_are_found():
    checker = CommandChecker(LIMITS)
    checker.check(1.0, None, due=True)
    checker.check(1.02, None, due=False)
    checker.check(1.05, stop(1.04), due=True)
    assert [violation.rule for violation in checker.violations] == ["silence", "stamp"]


@pytest.mark.parametrize(("shift", "factor"), [(2e-6, 1.0), (0.0, 1.00001)])
def test_the_smallest_jump_between_two_commands_is_found(shift, factor):
    later = rebased(stop(), 1.02)
    jumped = replace(later, positions=later.positions + shift, velocities=later.velocities * factor)
    assert rules(jumped, last=stop()) == {"jump"}


def test_a_jump_that_no_joint_could_follow_is_found_as_a_step():
    later = rebased(stop(), 1.02)
    assert "step" in rules(replace(later, positions=later.positions + 0.2), last=stop())


def test_between_two_points_the_cubic_counts():
    """Resting at both ends, 0.3 rad apart, in half a second: 0.9 rad/s between them, 7.2 rad/s^2 at them."""
    times, positions = np.array([0.0, 0.5]), np.array([np.zeros(6), np.full(6, 0.3)])
    between = Trajectory(1.0, LIMITS.joint_names, times, positions, np.zeros((2, 6)))
    assert rules(between, jerk=False) == set()
    assert rules(replace(between, positions=positions * 1.5), jerk=False) == {"acceleration"}
