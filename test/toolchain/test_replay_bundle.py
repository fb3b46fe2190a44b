"""A policy on recorded inputs: it sees what had been seen by then, each picture once, and the same twice over."""

import numpy as np
import pytest

from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.policy.policy import load_policy
from vla_runtime.toolchain.replay.answers import BundleAnswers
from vla_runtime.toolchain.replay.recording import Frames, Recording, Series
from vla_runtime.toolchain.replay.rehearsal import rehearse
from vla_runtime.toolchain.tiny_bundle import JOINTS, write_tiny_bundle

LIMITS = load_robot("so101_sim").limits
LATENCY_S = 0.08


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    made = load_policy(write_tiny_bundle(tmp_path_factory.mktemp("bundle")))
    made.warm_up()
    return made


@pytest.fixture
def recording() -> Recording:
    """Two seconds of an arm at rest, two cameras at 30 Hz whose pictures tell their number."""
    times = np.arange(0.0, 2.0, 0.01)
    frames = {}
    for camera in ("front", "wrist"):
        stamps = list(np.arange(0.0, 2.0, 1 / 30))
        pictures = [np.full((48, 64, 3), i, np.uint8) for i in range(len(stamps))]
        frames[camera] = Frames(stamps, [lambda p=picture: p for picture in pictures])
    joints = Series(JOINTS, times, np.zeros((len(times), 6)))
    return Recording(joints, None, frames, [(0.0, "pick up the red cube")], 2.0, 0)


def run(policy, recording):
    answers = BundleAnswers(policy, recording, LIMITS.joint_names, LATENCY_S)
    measured = recording.joints.pick(LIMITS.joint_names)
    return rehearse(LIMITS, executor_settings(), watchdog_settings(), measured, answers, recording.duration)


def test_the_policy_drives_the_recorded_scene(policy, recording):
    result = run(policy, recording)
    assert len(result.answers) > 4
    assert result.time_in_state_s["NOMINAL"] > 1.0
    assert result.limit_excess <= 1e-9


def test_twice_the_same(policy, recording):
    first, second = run(policy, recording), run(policy, recording)
    assert first.summary() == second.summary()
    assert all(np.array_equal(a.positions, b.positions) for a, b in zip(first.commands, second.commands))


def test_no_answer_knows_a_picture_from_after_its_request(policy, recording, monkeypatch):
    seen = []
    infer = policy.infer

    def watched(observation, *args, **named):
        seen.append((observation.t, int(observation.images["front"][0, 0, 0])))
        return infer(observation, *args, **named)

    monkeypatch.setattr(policy, "infer", watched)
    result = run(policy, recording)
    numbers = [number for _, number in seen]
    assert numbers == sorted(set(numbers)), "each picture at most once, in order"
    for (t, number), answer in zip(seen, result.answers):
        assert t <= number / 30 + 1e-9
        assert answer.received >= number / 30 + LATENCY_S - 1e-9
        assert answer.t0 == t


def test_a_request_after_the_last_picture_gets_no_answer(policy, recording):
    for frames in recording.frames.values():
        del frames.times[20:], frames.decode[20:]
    result = run(policy, recording)
    assert all(answer.t0 <= 19 / 30 + 1e-9 for answer in result.answers)
    assert "FALLBACK" in result.time_in_state_s
