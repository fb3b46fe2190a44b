"""Joints by name: shuffled, missing, unknown, in parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState

from vla_runtime.nodes.joint_map import JointMap, JointNameError, JointReader
from vla_runtime.nodes.joint_state_cdr import JointStateDecoder, from_message, read_joint_state
from vla_runtime.nodes.messages import set_stamp

NAMES = ("pan", "lift", "elbow", "grip")


def state(names, position, velocity=(), effort=()):
    return JointState(
        name=list(names), position=[float(x) for x in position], velocity=[float(x) for x in velocity],
        effort=[float(x) for x in effort],
    )  # fmt: skip


@given(st.permutations(NAMES), st.permutations(NAMES))
@settings(deadline=None)
def test_shuffled_names_are_mapped_in_every_message(first, second):
    reader, joints = JointReader(NAMES), JointMap(NAMES)
    for t, names in ((1.0, first), (1.02, second)):
        message = state(names, [NAMES.index(n) for n in names], [10 * NAMES.index(n) for n in names])
        sample = reader.read(message, t)
        assert sample.position.tolist() == [0, 1, 2, 3]
        assert sample.velocity.tolist() == [0, 10, 20, 30]
        assert sample.t == t
        assert [names[i] for i in joints.order(names, "trajectory")] == list(NAMES)
    assert reader.fault == ""


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["pan", "lift", "elbow"], "missing joint grip"),
        (["pan", "lift", "elbow", "grip", "wrist"], "unknown joint wrist"),
        (["pan", "lift", "elbow", "gripper"], "missing joint grip; unknown joint gripper"),
        (["pan", "pan", "lift", "elbow", "grip"], "twice the joint pan"),
        ([], "missing joint pan, lift, elbow, grip"),
    ],
)
def test_a_trajectory_with_other_joints_is_refused_by_name(names, text):
    with pytest.raises(JointNameError, match=text):
        JointMap(NAMES).order(names, "trajectory")


def test_joints_that_are_not_ours_are_passed_over():
    sample = JointReader(NAMES).read(state(["left_wheel", *NAMES], [99, 0, 1, 2, 3]), 5.0)
    assert sample.position.tolist() == [0, 1, 2, 3]


def test_a_joint_that_never_comes_is_named_and_there_is_no_sample():
    reader = JointReader(NAMES)
    assert reader.read(state(["pan", "lift", "grip"], [0, 0, 0]), 1.0) is None
    assert reader.fault == "joint states lack elbow"


def test_joints_in_parts_make_a_sample_as_old_as_the_oldest():
    reader = JointReader(NAMES)
    assert reader.read(state(NAMES[:3], [1, 2, 3], [0, 0, 0]), 1.0) is None
    sample = reader.read(state(NAMES[3:], [4], [0]), 1.01)
    assert (sample.t, sample.position.tolist()) == (1.0, [1, 2, 3, 4])
    assert reader.read(state(NAMES[:3], [2, 3, 4], [0, 0, 0]), 1.02).t == 1.01


def test_a_joint_that_is_sent_no_more_ages_the_sample_and_is_named():
    reader = JointReader(NAMES)
    reader.read(state(NAMES, [0, 0, 0, 0]), 1.0)
    sample = reader.read(state(NAMES[:3], [1, 1, 1]), 1.5)
    assert sample.t == 1.0
    assert reader.fault == "joint states lack grip"


def test_velocities_that_a_driver_does_not_send_come_from_positions():
    reader = JointReader(NAMES)
    assert reader.read(state(NAMES, [0, 0, 0, 0]), 1.0).velocity.tolist() == [0, 0, 0, 0]
    assert reader.read(state(NAMES, [0.1, 0, 0, -0.2]), 1.1).velocity.tolist() == pytest.approx([1, 0, 0, -2])
    assert reader.read(state(NAMES, [9, 9, 9, 9]), 9.0).velocity.tolist() == [0, 0, 0, 0]


def test_a_joint_without_a_velocity_interface_is_sent_as_nan_and_its_velocity_comes_from_positions():
    reader, nan = JointReader(NAMES), float("nan")
    first = reader.read(state(NAMES, [0, 0, 0, 0], [0.3, 0.2, 0.1, nan], [1, 2, nan, nan]), 1.0)
    assert (first.velocity.tolist(), first.effort, reader.fault) == ([0.3, 0.2, 0.1, 0.0], None, "")
    assert reader.read(state(NAMES, [0, 0, 0, 0.1], [0.3, 0.2, 0.1, nan]), 1.1).velocity[3] == pytest.approx(1.0)
    assert reader.read(state(NAMES, [0] * 4, [nan] * 4), 2.0).velocity.tolist() == [0] * 4


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (state(NAMES, [0, float("nan"), 0, 0]), "position of lift is not finite"),
        (state(NAMES, [0, 0, 0, 0], [0, 0, float("inf"), 0]), "velocity of elbow is not finite"),
        (state(NAMES, [0, 0]), "2 values of position for 4 names"),
        (state(NAMES, [0, 0, 0, 0], [0]), "1 values of velocity for 4 names"),
        (state(["pan", "pan", "lift", "elbow", "grip"], [0] * 5), "names pan twice"),
        (state([], []), "they name nothing"),
    ],
)
def test_a_bad_joint_state_is_no_sample_and_is_named(message, text):
    reader = JointReader(NAMES)
    reader.read(state(NAMES, [1, 2, 3, 4]), 1.0)
    assert reader.read(message, 1.02) is None
    assert text in reader.fault
    assert reader.refused == 1
    assert reader.read(state(NAMES, [1, 2, 3, 4]), 1.04) is not None
    assert reader.fault == ""


def test_what_is_not_finite_in_joints_that_are_not_ours_does_not_matter():
    assert JointReader(NAMES).read(state(["spare", *NAMES], [float("nan"), 0, 0, 0, 0]), 1.0) is not None


def test_effort_where_all_joints_have_it():
    reader = JointReader(NAMES)
    assert reader.read(state(NAMES, [0] * 4), 1.0).effort is None
    assert reader.read(state(NAMES, [0] * 4, effort=[1, 2, 3, 4]), 1.1).effort.tolist() == [1, 2, 3, 4]


def test_an_infinite_effort_is_not_a_measured_one():
    """It would stay in the mean that spikes are held against."""
    reader = JointReader(NAMES)
    assert reader.read(state(NAMES, [0] * 4, effort=[1, 2, np.inf, 4]), 1.0).effort is None
    assert reader.read(state(NAMES, [0] * 4, effort=[1, 2, 3, 4]), 1.1).effort is not None


def test_samples_are_not_changed_by_later_messages():
    reader = JointReader(NAMES)
    first = reader.read(state(NAMES, [1, 2, 3, 4]), 1.0)
    reader.read(state(NAMES, [5, 6, 7, 8]), 1.1)
    assert np.array_equal(first.position, [1, 2, 3, 4])


def newest(reader, *stamped):
    """`read_newest` of messages with their steady times."""
    data = []
    for message, t in stamped:
        set_stamp(message.header.stamp, round(t * 1e9))
        data.append(serialize_message(message))
    return reader.read_newest(data, lambda stamp: stamp / 1e9)


@given(st.permutations(NAMES), st.sampled_from(["", "base", "a longer frame"]), st.booleans(), st.booleans())
@settings(deadline=None)
def test_the_bytes_say_what_the_message_says(names, frame, with_velocity, with_effort):
    message = state(names, [1.5, -2, 3, 4], [5, 6, 7, 8] if with_velocity else (), [9, 8, 7, 6] if with_effort else ())
    message.header.frame_id = frame
    set_stamp(message.header.stamp, 12_345_678_901)
    flat, same = read_joint_state(serialize_message(message)), from_message(message)
    assert (flat.stamp_ns, flat.names) == (same.stamp_ns, same.names) == (12_345_678_901, tuple(names))
    for field in ("position", "velocity", "effort"):
        assert np.array_equal(getattr(flat, field), getattr(same, field))


@given(
    st.lists(
        st.tuples(st.permutations(NAMES), st.sampled_from(["", "base", "tool0"]), st.booleans(), st.booleans()),
        min_size=1, max_size=6,
    ),
    st.integers(1, 3),
)  # fmt: skip
@settings(deadline=None)
def test_messages_one_after_the_other_are_read_as_each_alone(layouts, times):
    decoder = JointStateDecoder()
    for number, (names, frame, with_velocity, with_effort) in enumerate(x for x in layouts for _ in range(times)):
        values = [number + 0.25 * i for i in range(4)]
        message = state(names, values, values if with_velocity else (), values[::-1] if with_effort else ())
        message.header.frame_id = frame
        set_stamp(message.header.stamp, 10**9 + number)
        flat, same = decoder.read(serialize_message(message)), from_message(message)
        assert (flat.stamp_ns, flat.names) == (same.stamp_ns, same.names)
        for field in ("position", "velocity", "effort"):
            assert np.array_equal(getattr(flat, field), getattr(same, field))


def test_what_is_not_in_the_plain_form_is_read_by_rclpy_every_time():
    names = [f"joint_{i}" for i in range(1001)]  # more than we read ourselves
    data = serialize_message(JointState(name=names, position=[0.5] * 1001))
    decoder = JointStateDecoder()
    for _ in range(2):
        assert decoder.read(data).names == tuple(names)
    assert decoder.read(serialize_message(state(NAMES, [1, 2, 3, 4]))).names == NAMES


def test_of_several_messages_the_newest_counts_unless_they_are_parts():
    whole = JointReader(NAMES)
    sample = newest(whole, (state(NAMES, [9, 9, 9, 9]), 1.0), (state(NAMES, [1, 2, 3, 4]), 1.01))
    assert (sample.t, sample.position.tolist()) == (1.01, [1, 2, 3, 4])
    parts = JointReader(NAMES)
    sample = newest(parts, (state(NAMES[:2], [1, 2]), 1.0), (state(NAMES[2:], [3, 4]), 1.01))
    assert (sample.t, sample.position.tolist()) == (1.0, [1, 2, 3, 4])
    assert newest(whole) is None


def test_a_driver_that_repeats_itself_says_nothing_new_whatever_the_clock_does():
    """Found by the fault campaign: after a jump back of the clock the old message looked as if it were of now."""
    reader = JointReader(NAMES)
    message = state(NAMES, [1, 2, 3, 4])
    data = serialize_message(message)
    assert reader.read_newest([data], lambda stamp: 10.0).t == 10.0
    assert reader.read_newest([data], lambda stamp: 10.15) is None
    assert reader.refused == 0


@pytest.mark.parametrize("cut", [0, 2, 4, 8, 20, 40])
def test_bytes_that_are_no_joint_state_do_not_keep_the_good_ones_from_us(cut):
    """They raised in the control thread: while they came, no command left the watchdog."""
    reader = JointReader(NAMES)
    good = [serialize_message(state(NAMES, [i, 2, 3, 4])) for i in range(3)]
    for i, data in enumerate(good):
        sample = reader.read_newest([data, data[:cut], data[:cut]], lambda stamp, t=1.0 + i: t)
        if i == 0:
            assert sample.position.tolist() == [0, 2, 3, 4]
    assert reader.refused == 6
    assert JointReader(NAMES).read_newest([good[0][:cut]], float) is None


def test_drivers_are_told_apart_by_the_joints_that_they_name():
    """Two that name the same (a leader arm's beside the follower's) are one too many."""
    reader = JointReader(NAMES)
    assert reader.sources == 1
    for i, names in enumerate((NAMES, NAMES, ["wheel"], NAMES)):
        newest(reader, (state(names, range(len(names))), 1.0 + i))
    assert reader.sources == 2


def test_a_driver_of_none_of_our_joints_is_no_fault_while_ours_come():
    """A mobile base's wheels on the same topic were an error in /diagnostics."""
    reader = JointReader(NAMES)
    assert newest(reader, (state(["wheel"], [1]), 0.9)) is None
    assert "they name wheel" in reader.fault
    assert newest(reader, (state(NAMES, [1, 2, 3, 4]), 1.0)) is not None
    refused = reader.refused
    assert newest(reader, (state(["wheel"], [1]), 1.05)) is None
    assert (reader.fault, reader.refused) == ("", refused)
    newest(reader, (state(["wheel"], [1]), 1.5))  # ours have stopped
    assert "joint states lack pan, lift, elbow, grip" in reader.fault


def test_bytes_that_are_no_joint_state_are_named():
    reader = JointReader(NAMES)
    reader.read_newest([serialize_message(state(NAMES, [1, 2, 3, 4]))[:20]], float)
    assert "20 bytes that are no JointState" in reader.fault


def test_a_bad_newest_message_is_no_sample():
    reader = JointReader(NAMES)
    bad = state(NAMES, [float("nan")] * 4)
    assert newest(reader, (state(NAMES, [1, 2, 3, 4]), 1.0), (bad, 1.01)) is None
    assert "not finite" in reader.fault
