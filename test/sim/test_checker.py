"""The independent checker finds what it is there to find, and nothing in what is right."""

import numpy as np
import pytest

from vla_runtime.control.limits import Limits
from vla_runtime.sim.checker import Checker
from vla_runtime.sim.follower import TrajectoryMessage

LIMITS = Limits(
    ("a", "b"), np.full(2, -1.0), np.full(2, 1.0), np.full(2, 2.0), np.full(2, 20.0), np.full(2, 400.0), np.zeros(2)
)
TIMES = np.arange(0.0, 0.41, 0.02)


def smooth(t, amplitude=0.2):
    """From rest to rest within 0.4 s."""
    s = np.clip(t / 0.4, 0.0, 1.0)
    position = amplitude * (10 * s**3 - 15 * s**4 + 6 * s**5)
    velocity = amplitude * (30 * s**2 - 60 * s**3 + 30 * s**4) / 0.4
    return np.stack([position, -position], 1), np.stack([velocity, -velocity], 1)


def message(start=0.0, change=lambda p, v: None):
    times = np.concatenate([[0.0], TIMES[np.searchsorted(TIMES, start + 0.004) :] - start])
    positions, velocities = smooth(times + start)
    change(positions, velocities)
    return TrajectoryMessage.from_arrays(round(1e9 * (1 + start)), ["a", "b"], times, positions, velocities)


def judged(*messages, plan_end_ns=None):
    checker = Checker(LIMITS)
    for sent in messages:
        checker.published(sent, sent.stamp_ns, plan_end_ns)
    return checker


def test_a_right_stream_has_no_violations():
    checker = judged(*[message(0.02 * k) for k in range(15)])
    assert checker.total == 0
    assert checker.elapsed == 0


def set_row(row, column, p=None, v=None):
    def change(positions, velocities):
        if p is not None:
            positions[row, column] = p
        if v is not None:
            velocities[row, column] = v

    return change


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (set_row(5, 0, p=np.nan), "not_finite"),
        (set_row(5, 1, v=np.inf), "not_finite"),
        (set_row(-1, 0, v=1e-12), "ends_moving"),
        (set_row(5, 0, p=1.01), "message_position"),
        (set_row(5, 0, v=2.1), "message_velocity"),
        (set_row(8, 1, p=-0.05), "message_acceleration"),
        (set_row(8, 1, v=0.3), "message_acceleration"),
    ],
)
def test_a_bad_point_is_found(change, kind):
    assert kind in judged(message(change=change)).violations


def test_a_jump_between_messages_is_found():
    assert judged(message(), message(0.1, set_row(0, 0, p=0.05))).violations["jump"] == 1
    assert judged(message(), message(0.1, set_row(0, 0, v=0.7))).violations["velocity_jump"] == 1


def test_waypoints_from_the_past_are_found():
    old = message()
    checker = Checker(LIMITS)
    checker.published(old, old.stamp_ns + 21_000_000, None)
    assert checker.elapsed == 1
    assert judged(message(0.1), plan_end_ns=1_090_000_000).elapsed == 1
    assert judged(message(0.1), plan_end_ns=1_100_000_000).elapsed == 0


def test_a_step_of_the_controllers_command_is_found():
    checker = Checker(LIMITS)
    checker.commanded(np.array([0.0, 0.0]), 0.004)
    checker.commanded(np.array([0.008, 0.0]), 0.004)
    assert checker.total == 0
    checker.commanded(np.array([0.008, 0.0085]), 0.004)
    assert checker.violations == {"velocity": 1}
    checker.commanded(np.array([1.1, 0.0085]), 1.0)
    assert checker.violations == {"velocity": 1, "position": 1}
