"""The independent judge finds what it is there to find, and nothing in what is right."""

import numpy as np
import pytest

from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.sim.command_checker import CommandChecker

LIMITS = Limits(
    ("a", "b"), np.full(2, -1.0), np.full(2, 1.0), np.full(2, 2.0), np.full(2, 20.0), np.full(2, 400.0), np.zeros(2)
)
GRID = np.arange(0.0, 0.41, 0.02)


def smooth(t, amplitude=0.2):
    """From rest to rest within 0.4 s."""
    s = np.clip(t / 0.4, 0.0, 1.0)
    position = amplitude * (10 * s**3 - 15 * s**4 + 6 * s**5)
    velocity = amplitude * (30 * s**2 - 60 * s**3 + 30 * s**4) / 0.4
    return np.stack([position, -position], 1), np.stack([velocity, -velocity], 1)


def command(start=0.0, change=lambda p, v: None, **fields):
    times = np.concatenate([[0.0], GRID[np.searchsorted(GRID, start + 0.0041) :] - start])
    positions, velocities = smooth(times + start)
    change(positions, velocities)
    return Trajectory(**{"start": start, "joint_names": ("a", "b"), "times": times, "positions": positions,
                         "velocities": velocities, **fields})  # fmt: skip


def rules(*commands, due=True):
    checker = CommandChecker(LIMITS)
    for sent in commands:
        checker.check(sent.start if sent else 0.0, sent, due)
    return {violation.rule for violation in checker.violations}


def row(index, joint, p=None, v=None):
    def change(positions, velocities):
        if p is not None:
            positions[index, joint] = p
        if v is not None:
            velocities[index, joint] = v

    return change


def test_a_right_stream_has_no_violations():
    assert rules(*[command(0.02 * k) for k in range(15)]) == set()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (row(5, 0, p=np.nan), "finite"),
        (row(5, 1, v=np.inf), "finite"),
        (row(-1, 0, v=1e-12), "rest"),
        (row(5, 0, p=1.01), "position"),
        (row(5, 0, v=2.1), "velocity"),
        (row(8, 1, p=-0.05), "acceleration"),
        (row(8, 1, v=0.3), "acceleration"),
    ],
)
def test_a_bad_point_is_found(change, rule):
    assert rule in rules(command(change=change))


def test_a_velocity_that_peaks_between_two_points_is_found():
    # At rest at both ends, 0.09 rad in 60 ms: 1.5 rad/s on average, 2.25 in the middle.
    times = np.array([0.0, 0.06])
    assert "velocity" in rules(
        Trajectory(0.0, ("a", "b"), times, np.array([[0.0, 0.0], [0.09, 0.0]]), np.zeros((2, 2)))
    )


def test_a_jump_between_commands_is_found():
    assert "jump" in rules(command(), command(0.02, row(0, 0, p=0.05)))
    assert "jump" in rules(command(), command(0.02, row(0, 0, v=0.7)))
    assert "step" in rules(command(), command(0.02, row(0, 0, p=0.05)))


def test_silence_is_a_violation_only_while_a_command_is_due():
    assert rules(command(), None) == {"silence"}
    assert rules(command(), None, due=False) == set()


def test_a_command_that_is_not_from_now_is_found():
    checker = CommandChecker(LIMITS)
    checker.check(0.02, command(), due=True)
    assert {violation.rule for violation in checker.violations} == {"stamp"}
