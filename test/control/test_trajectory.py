import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from vla_runtime.control.trajectory import Trajectory


def random_trajectory(seed, rows=8, n=3):
    rng = np.random.default_rng(seed)
    times = np.concatenate(([0.0], np.cumsum(rng.uniform(0.004, 0.05, rows - 1))))
    velocities = rng.normal(size=(rows, n))
    velocities[-1] = 0.0
    return Trajectory(100.0, tuple("abcdefgh"[:n]), times, rng.normal(size=(rows, n)), velocities)


@given(st.integers(0, 10000), st.floats(0.0, 1.0))
def test_it_is_the_cubic_of_positions_and_velocities(seed, share):
    trajectory = random_trajectory(seed)
    spline = CubicHermiteSpline(trajectory.times, trajectory.positions, trajectory.velocities)
    s = share * trajectory.times[-1]
    position, velocity = trajectory.sample(100.0 + s)
    assert position == pytest.approx(spline(s), abs=1e-8)
    assert velocity == pytest.approx(spline(s, 1), abs=1e-6)
    if 100.0 + s < trajectory.end - 1e-9:  # at the end itself it is zero
        assert trajectory.acceleration(100.0 + s) == pytest.approx(spline(s, 2), rel=1e-4, abs=1e-3)


def test_it_is_clamped_at_both_ends():
    trajectory = random_trajectory(1)
    for t, row in ((-5.0, 0), (100.0, 0), (trajectory.end, -1), (1e9, -1)):
        position, velocity = trajectory.sample(t)
        assert (position == trajectory.positions[row]).all()
        assert (velocity == trajectory.velocities[row]).all()
    assert (trajectory.acceleration(99.0) == 0).all()
    assert (trajectory.acceleration(trajectory.end + 1.0) == 0).all()


def test_what_it_returns_is_not_its_own():
    trajectory = random_trajectory(2)
    trajectory.sample(0.0)[0][:] = 7.0
    trajectory.sample(1e9)[1][:] = 7.0
    assert trajectory.fault() is None
    assert (trajectory.positions[0] != 7.0).all()


def test_a_sound_form_has_no_fault():
    assert random_trajectory(3).fault() is None
    single = Trajectory(1.0, ("a",), np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)))
    assert single.fault() is None
    assert single.end == 1.0
    assert single.sample(5.0)[0] == 0.0


@pytest.mark.parametrize(
    ("field", "place", "value", "message"),
    [
        ("times", 0, 0.01, "first point is 0.01"),
        ("times", 3, np.nan, "not finite"),
        ("times", 3, 0.0, "points 2 and 3 are"),
        ("positions", (2, 1), np.nan, "position of b at point 2 is nan"),
        ("velocities", (4, 2), np.inf, "velocity of c at point 4 is inf"),
        ("velocities", (-1, 0), 1e-9, "ends moving: a at 1e-09"),
    ],
)
def test_faults_are_named(field, place, value, message):
    sound = random_trajectory(4)
    arrays = {name: getattr(sound, name).copy() for name in ("times", "positions", "velocities")}
    arrays[field][place] = value
    assert message in Trajectory(100.0, sound.joint_names, **arrays).fault()


def test_points_closer_than_four_milliseconds_are_a_fault():
    times = np.array([0.0, 0.02, 0.0235])
    trajectory = Trajectory(0.0, ("a",), times, np.zeros((3, 1)), np.zeros((3, 1)))
    assert "points 1 and 2 are 0.0035 s apart" in trajectory.fault()


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="2 times and 1 joints"):
        Trajectory(0.0, ("a",), np.array([0.0, 0.1]), np.zeros((3, 1)), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="0 times"):
        Trajectory(0.0, ("a",), np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
