"""What the watchdog knows of requests, answers, heartbeats and joint states, and since when it knows nothing."""

from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.control.deviation import Deviation
from vla_runtime.control.silences import JointWatch, PolicyWatch, Silences
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.sim.watchdog_rig import six_joints


def sample(t: float, position: float = 0.0) -> JointSample:
    return JointSample(t, np.full(6, position), np.zeros(6))


def test_the_oldest_unanswered_request_counts():
    watch = PolicyWatch()
    watch.saw_request(1.0, "a:1")
    watch.saw_request(1.4, "a:2")
    assert watch.request_age_s(1.5) == pytest.approx(0.5)
    watch.saw_answer(1.6, "a:1", 0.9)
    assert watch.request_age_s(1.6) == pytest.approx(0.2)
    watch.saw_answer(1.7, "a:2", 1.3)
    assert watch.request_age_s(9.0) is None


def test_an_answer_closes_what_was_asked_before_it():
    """The executor gave request 1 up and asked again; the answer to 2 says that the policy lives."""
    watch = PolicyWatch()
    watch.saw_request(1.0, "a:1")
    watch.saw_request(2.0, "a:2")
    watch.saw_answer(2.1, "a:2", 1.9)
    assert watch.request_age_s(3.0) is None


def test_the_two_topics_have_no_common_order():
    watch = PolicyWatch()
    watch.saw_request(0.5, "a:1")
    watch.saw_answer(1.0, "a:2", 0.9)  # before its request
    watch.saw_request(1.01, "a:2")
    assert watch.request_age_s(2.0) is None
    assert watch.observed_at("a:2") == 0.9


def test_a_new_epoch_waits_for_nothing_of_the_old():
    watch = PolicyWatch()
    watch.saw_request(1.0, "a:7")
    watch.saw_request(5.0, "b:1")
    assert watch.request_age_s(5.2) == pytest.approx(0.2)


def test_a_second_answer_to_a_request_does_not_make_its_picture_newer():
    watch = PolicyWatch()
    watch.saw_answer(1.0, "a:1", 0.9)
    watch.saw_answer(9.0, "a:1", 8.9)
    assert watch.observed_at("a:1") == 0.9


@pytest.mark.parametrize(("t0", "kept", "odd"), [(0.9, 0.9, 0), (1.01, 1.0, 0), (50.0, 1.0, 1), (np.nan, None, 1)])
def test_an_observation_cannot_lie_in_the_future(t0, kept, odd):
    watch = PolicyWatch()
    watch.saw_answer(1.0, "a:1", t0)
    assert watch.observed_at("a:1") == kept
    assert watch.odd_stamps == odd


def test_memory_is_bounded_and_the_oldest_request_is_kept():
    watch = PolicyWatch()
    for n in range(10_000):
        watch.saw_request(float(n), f"a:{n}")
    assert watch.request_age_s(10_000.0) == 10_000.0
    assert len(watch._open) <= 64
    for n in range(10_000):
        watch.saw_answer(1e5, f"b:{n}", 1.0)
    assert len(watch._answered) <= 64
    assert watch.observed_at("b:9999") == 1.0 and watch.observed_at("b:1") is None


def test_heartbeats_count_only_when_ready_and_only_once_heard():
    watch = PolicyWatch()
    assert watch.silence(100.0, "policy", 0.5) is None  # a policy without heartbeat is no fault
    watch.saw_heartbeat(1.0, "ready")
    assert watch.silence(1.5, "policy", 0.5) is None
    watch.saw_heartbeat(1.4, "warming")
    late = watch.silence(1.6, "policy", 0.5)
    assert late.age_s == pytest.approx(0.6) and "warming" in late.text and "0.5" in late.text


def test_a_policy_that_says_it_failed_is_believed_at_once():
    watch = PolicyWatch()
    watch.saw_heartbeat(1.0, "error: CUDA out of memory")
    assert "CUDA out of memory" in watch.silence(1.0, "policy", 0.5).text


def test_joint_states_age_from_their_stamps():
    watch = JointWatch(6)
    assert watch.age_s(5.0) == np.inf
    watch.saw(5.0, sample(4.99))
    assert watch.age_s(5.05) == pytest.approx(0.06)
    assert watch.fresh(5.08, 0.1) and not watch.fresh(5.1, 0.1)


def test_the_same_joint_state_again_is_no_news():
    """A driver that repeats its last state, stamp included, is as silent as one that is gone; whatever the stamp."""
    for stamp in (4.99, 1e6):
        watch = JointWatch(6)
        for tick in range(20):
            watch.saw(5.0 + 0.02 * tick, sample(stamp))
        assert watch.age_s(5.38) >= 0.37


def test_a_stamp_from_the_future_counts_as_now():
    watch = JointWatch(6)
    watch.saw(5.0, sample(5.0))
    watch.saw(5.02, sample(3600.0))  # the clock was set back while this was on its way
    assert watch.age_s(5.02) == 0.0 and watch.odd_stamps == 1
    watch.saw(5.04, sample(5.04))
    assert watch.age_s(5.05) == pytest.approx(0.01)


def test_one_sample_that_looks_old_does_no_harm():
    watch = JointWatch(6)
    watch.saw(5.0, sample(5.0))
    watch.saw(5.02, sample(-3600.0))  # the clock was set forward while this was on its way
    assert watch.fresh(5.02, 0.1) and watch.odd_stamps == 1
    for tick in range(10):  # but samples that all look old are a silence
        watch.saw(5.04 + 0.02 * tick, sample(-3600.0 + 0.02 * tick))
    assert not watch.fresh(5.24, 0.1)


@pytest.mark.parametrize(
    "bad",
    [
        replace(sample(5.02), position=np.array([0, 0, np.nan, 0, 0, 0.0])),
        replace(sample(5.02), velocity=np.full(6, np.inf)),
        replace(sample(5.02), position=np.zeros(5)),
        replace(sample(5.02), t=float("nan")),
    ],
)
def test_a_joint_state_that_is_none_is_counted_and_is_no_news(bad):
    watch = JointWatch(6)
    watch.saw(5.0, sample(5.0))
    watch.saw(5.02, bad)
    assert watch.refused == 1 and watch.refusal
    assert watch.last.t == 5.0
    assert watch.age_s(5.2) == pytest.approx(0.2)


def test_the_gravest_silence_is_the_one_about_which_least_is_known():
    silences = Silences(watchdog_settings(), 6)
    assert silences.gravest(1.0).stage == "joints"
    silences.joints.saw(1.0, sample(1.0))
    assert silences.gravest(1.0).stage == "stream"
    silences.policy.saw_answer(1.0, "a:1", 0.9)
    silences.accepted(1.0, 0.99, "a:1")
    assert silences.gravest(1.03) is None
    assert silences.gravest(1.04).stage == "stream"
    silences.accepted(3.0, 3.0, "a:1")
    silences.joints.saw(3.0, sample(3.0))
    assert silences.gravest(3.0).stage == "observation"


def test_a_deviation_must_last_and_names_the_worst_joint():
    limits = six_joints()
    deviation = Deviation(limits)
    commanded, measured = np.zeros(6), np.array([0.1, 0.0, -0.4, 0.0, 0.0, 0.0])
    assert deviation.check(0.0, commanded, measured, 0.3, 0.2) is None
    assert deviation.check(0.1, commanded, commanded, 0.3, 0.2) is None  # once good: begins anew
    assert deviation.check(0.2, commanded, measured, 0.3, 0.2) is None
    apart = deviation.check(0.41, commanded, measured, 0.3, 0.2)
    assert str(apart) == "elbow commanded 0 rad, measured -0.4 rad"


def test_a_gripper_that_holds_something_deviates_as_it_should():
    deviation = Deviation(six_joints())
    measured = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert deviation.check(0.0, np.zeros(6), measured, 0.3, 0.0) is None


def test_a_tolerance_of_zero_is_off():
    assert Deviation(six_joints()).check(0.0, np.zeros(6), np.full(6, 9.0), 0.0, 0.0) is None
