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
    read_header,
    read_trajectory,
    set_stamp,
    stamp_ns,
)
from vla_runtime.nodes.trajectory_cdr import TrajectoryEncoder, decode

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


def encoded(sent, stamps, **changes):
    stamp = stamps.to_stamp(sent.start)
    values = {"stamp_ns": stamp, "frame_id": sent.plan_id, "times": sent.times, "positions": sent.positions,
              "velocities": sent.velocities, **changes}  # fmt: skip
    return TrajectoryEncoder(NAMES).encode(**values)


def read(data, stamps, arrival=NOW):
    return read_trajectory(data, JointMap(NAMES), stamps, arrival)


def over_the_wire(message):
    return deserialize_message(serialize_message(message), JointTrajectory)


@given(st.integers(1, 40), st.floats(-0.5, 0.5))
@settings(deadline=None)
def test_a_trajectory_comes_back_as_it_was(m, offset):
    stamps = StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)
    sent = trajectory(m, NOW + offset)
    got = read(encoded(sent, stamps), stamps)
    assert np.array_equal(got.positions, sent.positions)
    assert np.array_equal(got.velocities, sent.velocities)
    assert np.allclose(got.times, sent.times, atol=1e-9)
    assert got.start == pytest.approx(sent.start, abs=1e-6)
    assert got.plan_id == "ab12:7"
    assert got.fault() == sent.fault()


def test_the_last_velocity_is_exactly_zero_and_there_are_no_accelerations(stamps):
    message = deserialize_message(encoded(trajectory(), stamps), JointTrajectory)
    assert list(message.points[-1].velocities) == [0.0, 0.0, 0.0]
    assert all(len(p.accelerations) == 0 and len(p.effort) == 0 for p in message.points)
    assert stamp_ns(message.points[0].time_from_start) == 0


def test_a_writer_leaves_nothing_of_a_longer_message():
    writer = TrajectoryWriter(NAMES)
    long, short = trajectory(20), trajectory(3, seed=1)
    writer.write(0, "a", long.times, long.positions, None)
    message = over_the_wire(writer.write(0, "b", short.times, short.positions, None))
    assert len(message.points) == 3
    assert np.array_equal(message.points[2].positions, short.positions[2])


def test_without_a_stamp_it_begins_on_arrival(stamps):
    assert read(encoded(trajectory(), stamps, stamp_ns=0), stamps, 999.5).start == 999.5


def test_the_sender_may_name_its_joints_in_any_order(stamps):
    sent = trajectory()
    turned = TrajectoryEncoder(("grip", "pan", "lift")).encode(
        0, "", sent.times, sent.positions[:, [2, 0, 1]], sent.velocities[:, [2, 0, 1]]
    )
    assert np.array_equal(read(turned, stamps).positions, sent.positions)


def test_what_the_short_way_cannot_read_is_read_all_the_same(stamps):
    message = JointTrajectory(joint_names=list(NAMES), points=points(([1.0] * 3, [0.0] * 3)))
    message.points[0].accelerations = [0.0] * 3
    assert read(serialize_message(message), stamps).positions.tolist() == [[1.0] * 3]


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
        read(serialize_message(message), stamps)


def test_what_is_not_finite_is_carried_to_its_judge(stamps):
    sent = trajectory()
    sent.positions[1, 1] = np.nan
    assert "lift" in read(encoded(sent, stamps), stamps).fault()


def chunk_message(stamps, rows=4, dt=0.04, times=None):
    times = dt * np.arange(rows) if times is None else np.asarray(times)
    positions = np.arange(3.0 * len(times)).reshape(len(times), 3)
    return TrajectoryWriter(NAMES).write(stamps.to_stamp(NOW - 0.3), "ab12:3", times, positions, None)


def test_a_chunk(stamps):
    chunk = read_chunk(serialize_message(chunk_message(stamps)), stamps, NOW)
    assert chunk.t0 == pytest.approx(NOW - 0.3, abs=1e-6)
    assert chunk.dt == pytest.approx(0.04)
    assert (chunk.request_id, chunk.received, chunk.joint_names) == ("ab12:3", NOW, NAMES)
    assert chunk.positions.tolist() == np.arange(12.0).reshape(4, 3).tolist()


@given(st.integers(2, 60), st.sampled_from([0.02, 1 / 30, 0.1, 1 / 15]))
@settings(deadline=None)
def test_a_chunks_step_survives_the_message(rows, dt):
    stamps = StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)
    assert read_chunk(serialize_message(chunk_message(stamps, rows, dt)), stamps, NOW).dt == pytest.approx(dt, abs=1e-8)


@pytest.mark.parametrize("times", [[0.0], [], [0.0, 0.04, 0.12], [0.04, 0.08], [0.0, 0.0, 0.0]])
def test_a_chunk_without_one_step_is_refused(stamps, times):
    with pytest.raises(MessageError):
        read_chunk(serialize_message(chunk_message(stamps, times=times)), stamps, NOW)


@given(st.text("abc:1", max_size=9), st.integers(2, 9))
@settings(deadline=None)
def test_a_chunks_bytes_say_what_the_message_says(frame, rows):
    stamps = StampClock(lambda: 1_790_000_000 * NANO, lambda: NOW)
    message = chunk_message(stamps, rows)
    message.header.frame_id = frame
    flat = decode(serialize_message(message))
    assert (flat.frame_id, flat.joint_names, flat.velocities.shape) == (frame, NAMES, (rows, 0))
    assert flat.positions.tolist() == np.arange(3.0 * rows).reshape(rows, 3).tolist()
    assert flat.times.tolist() == pytest.approx((0.04 * np.arange(rows)).tolist(), abs=1e-9)


def test_a_chunk_with_a_row_too_short_is_refused_by_its_place(stamps):
    message = chunk_message(stamps)
    message.points[2].positions = message.points[2].positions[:2]
    with pytest.raises(MessageError, match="point 2 has 2 values of positions"):
        read_chunk(serialize_message(message), stamps, NOW)


def test_bytes_that_are_no_trajectory_are_refused(stamps):
    with pytest.raises(MessageError, match="not a JointTrajectory"):
        read(b"\x00\x01\x00\x00abc", stamps)


def test_the_header_is_read_without_the_rest(stamps):
    assert read_header(encoded(trajectory(), stamps)) == (stamps.to_stamp(NOW), "ab12:7")


@pytest.mark.parametrize("cut", [0, 3, 4, 8, 11, 14])
def test_bytes_without_a_header_are_refused(stamps, cut):
    with pytest.raises(MessageError, match=f"^{cut} bytes that do not begin with a header"):
        read_header(encoded(trajectory(), stamps)[:cut])
