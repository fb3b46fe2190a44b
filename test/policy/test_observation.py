import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.errors import ObservationError
from vla_runtime.policy.observation import NotReady, ObservationAssembler
from vla_runtime.policy.policy import Observation

FRAME = np.zeros((4, 4, 3), np.uint8)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

    return load_bundle(write_tiny_bundle(tmp_path_factory.mktemp("tiny"))).policy


def fill(assembler, policy, t, cameras=("front", "wrist")):
    for camera in cameras:
        assembler.offer_image(camera, t, FRAME)
    assembler.offer_state(t, policy.state.joints, np.arange(6) / 10)


def test_nothing_yet_names_every_missing_input(policy):
    answer = ObservationAssembler(policy, max_age_s=0.2).take(0.0)
    assert isinstance(answer, NotReady) and answer.kind == "missing"
    assert all(word in answer.detail for word in ("front", "wrist", "joint state"))


def test_time_is_that_of_the_oldest_input(policy):
    assembler = ObservationAssembler(policy, max_age_s=0.2)
    assembler.offer_image("front", 1.00, FRAME)
    assembler.offer_image("wrist", 1.05, FRAME)
    assembler.offer_state(1.08, policy.state.joints, np.zeros(6))
    assert assembler.take(1.1).t == 1.00


def test_a_slow_camera_gives_no_second_observation_from_one_frame(policy):
    assembler = ObservationAssembler(policy, max_age_s=0.5)
    fill(assembler, policy, 1.0)
    assert isinstance(assembler.take(1.01), Observation)
    for tick in range(4):
        assembler.offer_state(1.02 + tick * 0.02, policy.state.joints, np.zeros(6))
        answer = assembler.take(1.02 + tick * 0.02)
        assert answer.kind == "waiting"
    assert assembler.counters["waiting"] == 4
    fill(assembler, policy, 1.1, cameras=["front"])
    assert "wrist" in assembler.take(1.1).detail
    fill(assembler, policy, 1.11, cameras=["wrist"])
    assert isinstance(assembler.take(1.12), Observation)


def test_a_frozen_camera_becomes_stale(policy):
    assembler = ObservationAssembler(policy, max_age_s=0.2)
    fill(assembler, policy, 1.0)
    assembler.take(1.0)
    for tick in range(1, 30):
        now = 1.0 + tick * 0.02
        assert not assembler.offer_image("front", 1.0, FRAME)
        assembler.offer_image("wrist", now, FRAME)
        assembler.offer_state(now, policy.state.joints, np.zeros(6))
        answer = assembler.take(now)
        assert answer.kind == ("stale" if now - 1.0 > 0.2 else "waiting")
    assert "front" in answer.detail and "0.200" in answer.detail
    assert assembler.counters["not_newer.front"] == 29


def test_old_state_is_stale_even_with_fresh_frames(policy):
    assembler = ObservationAssembler(policy, max_age_s=0.1)
    fill(assembler, policy, 1.0)
    fill(assembler, policy, 1.0)
    assembler.offer_image("front", 1.3, FRAME)
    assembler.offer_image("wrist", 1.3, FRAME)
    answer = assembler.take(1.3)
    assert answer.kind == "stale" and "joint state" in answer.detail


def test_a_stamp_from_the_future_is_refused_and_does_not_shadow_true_ones(policy):
    assembler = ObservationAssembler(policy, max_age_s=0.2)
    fill(assembler, policy, 100.0)
    assert assembler.take(1.0).kind == "future"
    fill(assembler, policy, 1.01)
    assert assembler.take(1.02).t == 1.01


@settings(deadline=None, max_examples=50)
@given(st.permutations(list(range(8))))
def test_joints_are_mapped_by_name_in_every_message(policy, order):
    names = [*policy.state.joints, "extra_a", "extra_b"]
    values = np.arange(8) / 10
    assembler = ObservationAssembler(policy, max_age_s=1)
    fill(assembler, policy, 0.9)
    assembler.offer_state(1.0, [names[i] for i in order], [values[i] for i in order])
    assert np.array_equal(assembler.take(1.0).state, values[:6])


def test_bad_states_are_refused_and_the_good_one_stays(policy):
    assembler = ObservationAssembler(policy, max_age_s=1)
    fill(assembler, policy, 1.0)
    with pytest.raises(ObservationError, match="elbow_flex"):
        assembler.offer_state(1.1, [j for j in policy.state.joints if j != "elbow_flex"], np.zeros(5))
    with pytest.raises(ObservationError, match="wrist_flex"):
        assembler.offer_state(1.1, policy.state.joints, [0, 0, 0, np.nan, 0, 0])
    with pytest.raises(ObservationError, match="6 names but 5"):
        assembler.offer_state(1.1, policy.state.joints, np.zeros(5))
    assert assembler.take(1.1).state[5] == 0.5


def test_unknown_camera_is_named(policy):
    with pytest.raises(ObservationError, match="ceiling.*front"):
        ObservationAssembler(policy, max_age_s=1).offer_image("ceiling", 0, FRAME)


def test_lazy_frames_are_decoded_once_when_used_and_a_broken_one_is_dropped(policy):
    calls = []

    def frame(name, fails=False):
        def decode():
            calls.append(name)
            if fails:
                raise ValueError("torn JPEG")
            return FRAME

        return decode

    assembler = ObservationAssembler(policy, max_age_s=1)
    fill(assembler, policy, 0.9)
    for i in range(5):
        assembler.offer_image("front", 1 + i / 10, frame(i, fails=i == 4))
    answer = assembler.take(1.45)
    assert calls == [4] and answer.kind == "bad" and "torn JPEG" in answer.detail and "front" in answer.detail
    assert assembler.take(1.45).kind == "waiting"


def test_instruction_default_and_change(policy):
    assembler = ObservationAssembler(policy, max_age_s=1)
    fill(assembler, policy, 1.0)
    assert assembler.take(1.0).instruction == "pick up the red cube"
    assembler.offer_instruction("pick up the blue cube")
    fill(assembler, policy, 1.1)
    assert assembler.take(1.1).instruction == "pick up the blue cube"


def test_clear_forgets_samples(policy):
    assembler = ObservationAssembler(policy, max_age_s=1)
    fill(assembler, policy, 5.0)
    assembler.take(5.0)
    assembler.clear()
    assert assembler.take(5.0).kind == "missing" and assembler.ages(5.0) == {}
    fill(assembler, policy, 1.0)
    assert assembler.take(1.0).t == 1.0


def test_age_limit_must_be_positive(policy):
    with pytest.raises(ObservationError, match="max_age_s"):
        ObservationAssembler(policy, max_age_s=0)


offers = st.lists(
    st.tuples(st.sampled_from(["front", "wrist", "state", "take"]), st.floats(0, 0.3), st.floats(0, 0.02)), max_size=60
)


@settings(deadline=None, max_examples=150)
@given(offers)
def test_whatever_arrives_no_frame_is_used_twice_and_none_older_than_the_limit(policy, events):
    assembler = ObservationAssembler(policy, max_age_s=0.25)
    now, used = 0.0, set()
    for what, age, step in events:
        now += step
        if what == "state":
            assembler.offer_state(now - age, policy.state.joints, np.zeros(6))
        elif what != "take":
            stamp = now - age
            assembler.offer_image(what, stamp, lambda what=what, stamp=stamp: np.array([[[len(what), stamp, 0]]]))
        else:
            answer = assembler.take(now)
            if isinstance(answer, Observation):
                frames = {(name, image[0, 0, 1]) for name, image in answer.images.items()}
                assert not frames & used
                used |= frames
                assert now - answer.t <= 0.25
                assert answer.t <= min(stamp for _, stamp in frames)
