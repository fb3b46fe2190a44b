"""Trajectories and chunks through messages and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.control.trajectory import Trajectory
from vla_runtime.nodes.clock import NANO, StampClock
from vla_runtime.nodes.joint_map import JointMap, JointNameError
from vla_runtime.nodes.messages import (
    MessageError,
    TrajectoryWriter,
    read_chunk,
    read_trajectory,
    set_stamp,
    stamp_ns,
)

NAMES = ("pan", "lift", "grip")
NOW = 1000.0


@pytest.fixture
def stamps():
    return StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)


def trajectory(m=5, start=NOW, seed=0):
    rng = np.random.default_rng(seed)
    velocities = rng.normal(size=(m, 3))
    velocities[-1] = 0.0
    return Trajectory(start, NAMES, 0.02 * np.arange(m), rng.normal(size=(m, 3)), velocities, "ab12:7")


def over_the_wire(message):
    return deserialize_message(serialize_message(message), JointTrajectory)


@given(st.integers(1, 40), st.floats(-0.5, 0.5))
@settings(deadline=None)
def test_a_trajectory_comes_back_as_it_was(m, offset):
    stamps = StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)
    sent = trajectory(m, NOW + offset)
    got = read_trajectory(over_the_wire(TrajectoryWriter(NAMES).trajectory(sent, stamps)), JointMap(NAMES), stamps, NOW)
    assert np.array_equal(got.positions, sent.positions)
    assert np.array_equal(got.velocities, sent.velocities)
    assert np.allclose(got.times, sent.times, atol=1e-9)
    assert got.start == pytest.approx(sent.start, abs=1e-6)
    assert got.plan_id == "ab12:7"
    assert got.fault() == sent.fault()


def test_the_last_velocity_is_exactly_zero_and_there_are_no_accelerations(stamps):
    message = over_the_wire(TrajectoryWriter(NAMES).trajectory(trajectory(), stamps))
    assert list(message.points[-1].velocities) == [0.0, 0.0, 0.0]
    assert all(len(p.accelerations) == 0 and len(p.effort) == 0 for p in message.points)
    assert stamp_ns(message.points[0].time_from_start) == 0


def test_a_writer_leaves_nothing_of_a_longer_message(stamps):
    writer = TrajectoryWriter(NAMES)
    writer.trajectory(trajectory(20), stamps)
    short = over_the_wire(writer.trajectory(trajectory(3, seed=1), stamps))
    assert len(short.points) == 3
    assert np.array_equal(short.points[2].positions, trajectory(3, seed=1).positions[2])


def test_immediate_leaves_the_stamp_zero_and_begins_on_arrival(stamps):
    message = TrajectoryWriter(NAMES).trajectory(trajectory(), stamps, immediate=True)
    assert stamp_ns(message.header.stamp) == 0
    assert read_trajectory(message, JointMap(NAMES), stamps, 999.5).start == 999.5


def test_the_sender_may_name_its_joints_in_any_order(stamps):
    sent = trajectory()
    turned = TrajectoryWriter(("grip", "pan", "lift")).write(
        0, "", sent.times, sent.positions[:, [2, 0, 1]], sent.velocities[:, [2, 0, 1]]
    )
    got = read_trajectory(turned, JointMap(NAMES), stamps, NOW)
    assert np.array_equal(got.positions, sent.positions)


def points(*rows):
    made = []
    for i, (position, velocity) in enumerate(rows):
        point = JointTrajectoryPoint(positions=position, velocities=velocity)
        set_stamp(point.time_from_start, i * 20_000_000)
        made.append(point)
    return made


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (JointTrajectory(joint_names=list(NAMES)), MessageError, "without points"),
        (JointTrajectory(joint_names=["a", "lift", "grip"], points=points(([0.0] * 3, [0.0] * 3))), JointNameError,
         "missing joint pan; unknown joint a"),
        (JointTrajectory(joint_names=list(NAMES), points=points(([0.0] * 3, [0.0] * 3), ([0.0] * 2, [0.0] * 3))),
         MessageError, "point 1 has 2 values of positions for 3"),
        (JointTrajectory(joint_names=list(NAMES), points=points(([0.0] * 3, []))), MessageError,
         "point 0 has 0 values of velocities"),
    ],
)  # fmt: skip
def test_a_malformed_trajectory_is_refused_with_its_fault(stamps, message, error, text):
    with pytest.raises(error, match=text):
        read_trajectory(message, JointMap(NAMES), stamps, NOW)


def test_what_is_not_finite_is_carried_to_its_judge(stamps):
    sent = trajectory()
    sent.positions[1, 1] = np.nan
    got = read_trajectory(over_the_wire(TrajectoryWriter(NAMES).trajectory(sent, stamps)), JointMap(NAMES), stamps, NOW)
    assert "lift" in got.fault()


def chunk_message(stamps, rows=4, dt=0.04, times=None):
    times = dt * np.arange(rows) if times is None else np.asarray(times)
    positions = np.arange(3.0 * len(times)).reshape(len(times), 3)
    return TrajectoryWriter(NAMES).write(stamps.to_stamp(NOW - 0.3), "ab12:3", times, positions, None)


def test_a_chunk(stamps):
    chunk = read_chunk(over_the_wire(chunk_message(stamps)), stamps, NOW)
    assert chunk.t0 == pytest.approx(NOW - 0.3, abs=1e-6)
    assert chunk.dt == pytest.approx(0.04)
    assert (chunk.request_id, chunk.received, chunk.joint_names) == ("ab12:3", NOW, NAMES)
    assert chunk.positions.tolist() == np.arange(12.0).reshape(4, 3).tolist()


@given(st.integers(2, 60), st.sampled_from([0.02, 1 / 30, 0.1, 1 / 15]))
@settings(deadline=None)
def test_a_chunks_step_survives_the_message(rows, dt):
    stamps = StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)
    assert read_chunk(over_the_wire(chunk_message(stamps, rows, dt)), stamps, NOW).dt == pytest.approx(dt, abs=1e-8)


@pytest.mark.parametrize("times", [[0.0], [], [0.0, 0.04, 0.12], [0.04, 0.08], [0.0, 0.0, 0.0]])
def test_a_chunk_without_one_step_is_refused(stamps, times):
    with pytest.raises(MessageError):
        read_chunk(chunk_message(stamps, times=times), stamps, NOW)
