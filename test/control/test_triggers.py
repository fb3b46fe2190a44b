import numpy as np

from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.triggers import Triggers

STILL = np.zeros(2)


def sample(t, position=(0.0, 0.0), effort=None):
    return JointSample(t, np.array(position), STILL, None if effort is None else np.array(effort))


def fire(triggers, now, joints, commanded=(0.0, 0.0), mismatch=0.1, effort=0.0, holdoff=0.5):
    return triggers.fired(now, joints, lambda t: np.array(commanded), mismatch, effort, holdoff)


def test_an_arm_that_is_not_where_it_was_told_to_be():
    triggers = Triggers()
    assert fire(triggers, 1.0, sample(1.0, (0.0, 0.09))) == []
    assert fire(triggers, 1.02, sample(1.02, (0.0, -0.11))) == ["mismatch"]
    assert triggers.largest_mismatch == 0.11


def test_the_command_is_taken_at_the_time_of_the_sample():
    asked = []
    Triggers().fired(5.0, sample(4.97), lambda t: asked.append(t), 0.1, 0.0, 0.5)
    assert asked == [4.97]


def test_zero_switches_off_and_no_joints_say_nothing():
    triggers = Triggers()
    assert fire(triggers, 1.0, sample(1.0, (3.0, 0.0)), mismatch=0.0) == []
    assert fire(triggers, 1.0, None) == []


def test_a_cause_fires_again_only_after_the_holdoff():
    triggers = Triggers()
    times = [t / 50 for t in range(100) if fire(triggers, t / 50, sample(t / 50, (1.0, 0.0)))]
    assert times == [0.0, 0.5, 1.0, 1.5]
    assert triggers.counts == {"mismatch": 4}


def test_a_spike_of_effort_but_not_a_steady_load():
    triggers = Triggers()
    for t in range(200):
        assert fire(triggers, t / 50, sample(t / 50, effort=(1.0 + t / 200, -2.0)), effort=1.0) == []
    assert fire(triggers, 4.02, sample(4.02, effort=(3.5, -2.0)), effort=1.0) == ["effort"]


def test_what_others_notice_comes_in_once():
    triggers = Triggers()
    triggers.note("vision")
    triggers.note("vision")
    assert fire(triggers, 1.0, sample(1.0)) == ["vision"]
    assert fire(triggers, 1.02, sample(1.02)) == []
