"""Our reading and writing of the bytes, against rclpy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.nodes.messages import set_stamp, stamp_ns
from vla_runtime.nodes.trajectory_cdr import TrajectoryEncoder, decode

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
NAMES = st.lists(TEXT.filter(bool), min_size=1, max_size=14, unique=True)


@st.composite
def trajectories(draw):
    names = draw(NAMES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 40))
    times = np.cumsum(rng.uniform(0.004, 0.5, count)) - draw(st.floats(0.0, 2.0))
    shape = (count, len(names))
    values = draw(st.sampled_from([0.0, -1.5, np.nan, np.inf]))
    positions = rng.normal(size=shape)
    positions[0, 0] = values
    return draw(st.integers(0, 2**31 * 10**9 - 1)), draw(TEXT), names, times, positions, rng.normal(size=shape)


def as_message(stamp, frame_id, names, times, positions, velocities):
    message = JointTrajectory(joint_names=names)
    message.header.frame_id = frame_id
    set_stamp(message.header.stamp, stamp)
    for t, p, v in zip(times, positions, velocities):
        point = JointTrajectoryPoint(positions=p, velocities=v)
        set_stamp(point.time_from_start, round(t * 1e9))
        message.points.append(point)
    return message


@given(trajectories())
@settings(deadline=None, max_examples=200)
def test_what_we_write_rclpy_reads(trajectory):
    stamp, frame_id, names, times, positions, velocities = trajectory
    data = TrajectoryEncoder(names).encode(stamp, frame_id, times, positions, velocities)
    message = deserialize_message(data, JointTrajectory)
    assert (stamp_ns(message.header.stamp), message.header.frame_id) == (stamp, frame_id)
    assert message.joint_names == names
    assert np.array_equal([p.positions for p in message.points], positions, equal_nan=True)
    assert np.array_equal([p.velocities for p in message.points], velocities)
    assert [stamp_ns(p.time_from_start) for p in message.points] == [round(t * 1e9) for t in times.tolist()]
    assert all(len(p.accelerations) == len(p.effort) == 0 for p in message.points)


@given(trajectories())
@settings(deadline=None, max_examples=200)
def test_what_rclpy_writes_we_read(trajectory):
    stamp, frame_id, names, times, positions, velocities = trajectory
    flat = decode(serialize_message(as_message(*trajectory)))
    assert (flat.stamp_ns, flat.frame_id, flat.joint_names) == (stamp, frame_id, tuple(names))
    assert np.array_equal(flat.positions, positions, equal_nan=True)
    assert np.array_equal(flat.velocities, velocities)
    assert np.allclose(flat.times, times, atol=1e-9, rtol=0)


@pytest.mark.parametrize("spoil", ["accelerations", "effort", "short", "some velocities", "no points", "no joints"])
def test_what_is_not_plain_is_left_to_rclpy(spoil):
    message = as_message(5, "a:1", ["x", "yy"], [0.0, 0.02], np.ones((2, 2)), np.ones((2, 2)))
    if spoil in ("accelerations", "effort"):
        setattr(message.points[1], spoil, [1.0, 2.0])
    elif spoil == "short":
        message.points[1].positions = [1.0]
    elif spoil == "some velocities":
        message.points[0].velocities = []
    elif spoil == "no points":
        message.points = []
    else:
        message.joint_names = []
    assert decode(serialize_message(message)) is None


@given(trajectories(), st.data())
@settings(deadline=None)
def test_bytes_that_are_cut_or_changed_never_raise(trajectory, data):
    whole = bytearray(serialize_message(as_message(*trajectory)))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if cut:
            cut[data.draw(st.integers(0, len(cut) - 1))] = data.draw(st.integers(0, 255))
    flat = decode(bytes(cut))
    if flat is not None:
        assert flat.positions.shape == (len(flat.times), len(flat.joint_names))
        assert flat.velocities.shape in (flat.positions.shape, (len(flat.times), 0))


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_never_raise(data):
    decode(data)
    decode(b"\x00\x01\x00\x00" + data)
