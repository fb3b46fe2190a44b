from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.engines.errors import EngineError, EngineOutputError
from vla_runtime.policy.errors import BundleError, ObservationError
from vla_runtime.policy.policy import Observation, Prefix, load_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

    return load_policy(write_tiny_bundle(tmp_path_factory.mktemp("tiny")), allow_unproven=True)


def observation(seed: int = 0, instruction: str = "pick up the red cube") -> Observation:
    rng = np.random.default_rng(seed)
    images = {camera: rng.integers(0, 256, (40, 56, 3), dtype=np.uint8) for camera in ("front", "wrist")}
    return Observation(1.0, images, rng.uniform(-0.5, 0.5, 6), instruction)


def test_a_chunk_in_radians_with_a_time_for_each_stage(policy):
    policy.warm_up()
    output = policy.infer(observation(), seed=1)
    assert output.actions.shape == (50, 6) and output.actions.dtype == np.float64
    assert set(output.stage_ms) == {"preprocess", "vision", "backbone", "action"}
    assert all(value > 0 for value in output.stage_ms.values())
    assert output.actions[0] == pytest.approx(observation().state, abs=1e-6)


def test_same_seed_same_bits_other_seed_other_chunk(policy):
    first, second, other = (policy.infer(observation(), seed=seed).actions for seed in (7, 7, 8))
    assert np.array_equal(first, second) and not np.array_equal(first, other)


def test_without_a_seed_the_noise_differs(policy):
    assert not np.array_equal(policy.infer(observation()).actions, policy.infer(observation()).actions)


def test_instruction_picture_and_state_each_matter(policy):
    base = policy.infer(observation(), seed=1).actions
    changed = [
        observation(instruction="pick up the blue cube"),
        replace(observation(), images={**observation().images, "wrist": observation(5).images["wrist"]}),
        replace(observation(), state=observation().state + 0.1),
    ]
    for each in changed:
        assert np.abs(policy.infer(each, seed=1).actions - base).max() > 1e-4


def test_swapped_cameras_give_another_chunk(policy):
    images = observation().images
    swapped = replace(observation(), images={"front": images["wrist"], "wrist": images["front"]})
    means = [policy.context(each, each.state, {})["image_tokens"] for each in (observation(), swapped)]
    assert not np.allclose(*means)


@pytest.mark.parametrize("delay", [1, 5, 12])
def test_committed_rows_come_back_bit_equal_and_the_model_saw_them(policy, delay):
    prefix = Prefix(observation().state + np.linspace(0, 0.1, 14)[:, None] * np.ones(6))
    plain = policy.infer(observation(), seed=1)
    output = policy.infer(observation(), prefix, delay, seed=1)
    assert np.array_equal(output.actions[:delay], prefix.positions[:delay])
    assert output.details["committed_steps"] == delay
    # The tiny expert averages over x, so a committed prefix moves the rest of the chunk too.
    assert np.abs(output.actions[delay:] - plain.actions[delay:]).max() > 1e-6


def test_prefix_tokens_are_clean_before_every_step(policy):
    seen = []
    engine = policy.engines["action"]

    class Spy:
        inputs, outputs = engine.inputs, engine.outputs

        def run(self, tensors):
            seen.append((tensors["x"][0, :3].copy(), tensors["time"][0].copy()))
            return engine.run(tensors)

    policy.engines["action"] = Spy()
    try:
        prefix = Prefix(np.full((3, 6), 0.2))
        policy.infer(observation(), prefix, 3, seed=1)
    finally:
        policy.engines["action"] = engine
    assert len(seen) == 8
    for step, (rows, time) in enumerate(seen):
        assert rows == pytest.approx(np.full((3, 6), 0.4), abs=1e-6)
        assert (time[:3] == 1).all() and time[3:] == pytest.approx(np.full(47, step / 8))


def test_delay_longer_than_trained_is_cut_and_no_delay_means_no_prefix(policy):
    prefix = Prefix(np.zeros((30, 6)))
    assert policy.infer(observation(), prefix, 20, seed=1).details["committed_steps"] == 12
    plain, unused = policy.infer(observation(), seed=1), policy.infer(observation(), prefix, 0, seed=1)
    assert np.array_equal(plain.actions, unused.actions)


@pytest.mark.parametrize(
    ("change", "prefix", "delay", "word"),
    [
        ({"state": np.zeros(5)}, None, 0, "state has shape"),
        ({"state": np.full(6, np.nan)}, None, 0, "not finite"),
        ({"images": {}}, None, 0, "front"),
        ({}, np.zeros((4, 5)), 2, "prefix has shape"),
        ({}, np.full((4, 6), np.inf), 2, "not finite"),
        ({}, np.zeros((4, 6)), 5, "delay_steps is 5"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(policy, change, prefix, delay, word):
    with pytest.raises(ObservationError, match=word):
        policy.infer(replace(observation(), **change), None if prefix is None else Prefix(prefix), delay)


def test_nan_from_a_stage_is_named(policy):
    engine = policy.engines["backbone"]
    with pytest.raises(EngineOutputError, match=r"'backbone'.*'context'.*not finite"):
        tensors = policy.inputs(observation(), observation().state)
        tensors["image_tokens"] = policy.engines["vision"].run({"images": tensors["images"]})["image_tokens"]
        tensors["state"] = np.full_like(tensors["state"], np.nan)
        engine.run({name: tensors[name] for name in engine.inputs})


def test_unknown_family_and_engine_are_named(own_bundle, edit):
    with pytest.raises(EngineError, match="'warp'.*onnxruntime"):
        load_policy(own_bundle, engine="warp", allow_unproven=True)
    edit(own_bundle, lambda content: content.update(family="telepathy"))
    with pytest.raises(BundleError, match="telepathy.*flow"):
        load_policy(own_bundle, allow_unproven=True)


def test_a_missing_stage_is_named(own_bundle, edit):
    def without_vision(content):
        del content["stages"]["vision"]
        content["stages"]["look"] = {**content["stages"]["backbone"], "file": "vision.onnx"}
        content["stages"] = {"look": content["stages"].pop("look")}
        image = {"shape": [2, 3, 32, 32], "dtype": "float32"}
        tokens = {"shape": [1, 32, 16], "dtype": "float32"}
        content["stages"]["look"].update(inputs={"images": image}, outputs={"image_tokens": tokens})

    edit(own_bundle, without_vision)
    with pytest.raises(BundleError, match=r"family 'flow'.*missing \['vision', 'backbone', 'action'\]"):
        load_policy(own_bundle, allow_unproven=True)


def test_it_may_be_called_from_another_thread(policy):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(policy.infer, observation(), None, 0, 3).result()
    assert np.array_equal(other.actions, policy.infer(observation(), seed=3).actions)
