import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control import reframe

number = st.floats(-5.0, 5.0)
poses = st.tuples(number, number, st.floats(-7.0, 7.0)).map(np.array)


def test_deltas_are_from_the_observations_state_not_from_each_other():
    deltas = np.array([[0.1, 0.0], [0.2, -0.1], [0.2, -0.1]])
    assert reframe.joints_from_deltas(deltas, [1.0, 2.0]) == pytest.approx(np.array([[1.1, 2], [1.2, 1.9], [1.2, 1.9]]))


def test_velocities_are_integrated_from_the_state():
    positions = reframe.joints_from_velocities(np.array([[1.0], [2.0], [0.0]]), np.array([0.5]), 0.1)
    assert positions.ravel() == pytest.approx([0.5, 0.6, 0.8])


def test_a_robot_that_has_moved_one_metre_on_sees_the_waypoint_one_metre_nearer():
    seen = reframe.reframe_waypoints(np.array([[3.0, 0.0, 0.0]]), np.zeros(3), np.array([1.0, 0.0, 0.0]))
    assert seen == pytest.approx(np.array([[2.0, 0.0, 0.0]]))


def test_a_robot_that_has_turned_left_sees_the_waypoint_to_its_right():
    seen = reframe.reframe_waypoints(np.array([[2.0, 0.0, 0.0]]), np.zeros(3), np.array([0.0, 0.0, np.pi / 2]))
    assert seen == pytest.approx(np.array([[0.0, -2.0, -np.pi / 2]]))


@given(poses, poses, poses, st.integers(0, 1000), st.sampled_from([2, 3]))
def test_reframing_is_a_group(a, b, c, seed, width):
    waypoints = np.random.default_rng(seed).uniform(-3.0, 3.0, (6, width))
    there = reframe.reframe_waypoints(waypoints, a, b)
    assert same(reframe.reframe_waypoints(there, b, a), waypoints)
    assert same(reframe.reframe_waypoints(there, b, c), reframe.reframe_waypoints(waypoints, a, c))
    assert same(reframe.reframe_waypoints(waypoints, a, a), waypoints)


@given(poses, st.integers(0, 1000))
def test_distances_stay(pose, seed):
    waypoints = np.random.default_rng(seed).uniform(-3.0, 3.0, (6, 2))
    seen = reframe.waypoints_from_world(waypoints, pose)
    assert np.linalg.norm(np.diff(seen, axis=0), axis=1) == pytest.approx(
        np.linalg.norm(np.diff(waypoints, axis=0), axis=1)
    )
    assert np.linalg.norm(seen, axis=1) == pytest.approx(np.linalg.norm(waypoints - pose[:2], axis=1))


def same(a, b):
    difference = np.asarray(a) - np.asarray(b)
    if difference.shape[1] == 3:
        difference[:, 2] = reframe.wrap_angle(difference[:, 2])
    return np.abs(difference).max() < 1e-9


@given(st.floats(-100.0, 100.0))
def test_wrapped_angles_are_the_same_direction(angle):
    wrapped = float(reframe.wrap_angle(angle))
    assert -np.pi < wrapped <= np.pi
    assert np.exp(1j * wrapped) == pytest.approx(np.exp(1j * angle))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reframe.joints_from_deltas(np.zeros((4, 3)), np.zeros(2)), "3 joints, the state 2"),
        (lambda: reframe.joints_from_deltas(np.full((4, 2), np.nan), np.zeros(2)), "deltas"),
        (lambda: reframe.joints_from_velocities(np.zeros((4, 2)), np.zeros(2), 0.0), "dt"),
        (lambda: reframe.waypoints_to_world(np.zeros((4, 4)), np.zeros(3)), "got 4"),
        (lambda: reframe.waypoints_to_world(np.zeros((4, 2)), np.zeros(2)), "x, y and heading"),
        (lambda: reframe.waypoints_from_world(np.zeros(4), np.zeros(3)), "waypoints"),
        (lambda: reframe.waypoints_from_world(np.zeros((4, 2)), np.array([0, np.inf, 0])), "pose"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
