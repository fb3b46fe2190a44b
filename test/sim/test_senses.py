"""What a policy sees in simulated time."""

import numpy as np
import pytest

from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.observation import NotReady
from vla_runtime.policy.policy import Observation
from vla_runtime.sim.arm import Arm
from vla_runtime.sim.eyes import Eyes
from vla_runtime.sim.senses import Senses
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

FPS = 30.0


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_bundle(write_tiny_bundle(tmp_path_factory.mktemp("tiny"))).policy


@pytest.fixture
def scene(model):
    arm, eyes = Arm(3), Eyes()
    yield arm, Senses(arm, eyes, model, "lift the red cube", FPS)
    eyes.close()
    arm.close()


def pass_time(senses, start_s, end_s, step_s=0.004):
    for k in range(round((end_s - start_s) / step_s) + 1):
        senses.pass_time(start_s + k * step_s)


def test_an_observation_is_as_old_as_its_frame_and_no_frame_is_used_twice(scene):
    arm, senses = scene
    pass_time(senses, 50.0, 50.02)
    first = senses.observe(50.02)
    assert isinstance(first, Observation)
    assert first.t == 50.0
    assert first.instruction == "lift the red cube"
    np.testing.assert_array_equal(first.state, arm.q)
    again = senses.observe(50.024)
    assert isinstance(again, NotReady)
    assert again.kind == "waiting"
    pass_time(senses, 50.024, 50.036)
    assert senses.observe(50.036).t == pytest.approx(50.036)


def test_a_picture_shows_the_instant_that_it_was_taken_at(scene):
    arm, senses = scene
    senses.pass_time(50.0)
    expected = arm.render("front", *senses.observe(50.0).images["front"].shape[1::-1])
    senses.pass_time(50.034)
    arm.drive(arm.q + np.array([0.6, 0, 0, 0, 0, 0]), 0.3)
    seen = senses.observe(50.04).images["front"]
    np.testing.assert_array_equal(seen, expected)


def test_a_camera_that_the_scene_lacks_is_named(model):
    camera = model.cameras[0].model_copy(update={"name": "ceiling"})
    eyes = Eyes()
    with pytest.raises(ValueError, match="ceiling.*front.*wrist"):
        Senses(Arm(), eyes, model.model_copy(update={"cameras": [camera]}), "", FPS)
