"""Our bundles against LeRobot's own answers, for the same weights and inputs. Runs in the peers' environment."""

import importlib.util
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lerobot", reason="LeRobot is not installed (make test-peers)")

from vla_runtime.cli import main  # noqa: E402
from vla_runtime.policy.policy import Observation, load_policy  # noqa: E402
from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library  # noqa: E402
from vla_runtime.toolchain.export.random_smolvla import write_checkpoint  # noqa: E402
from vla_runtime.toolchain.tiny_bundle import word_tokenizer  # noqa: E402

JOINTS = "shoulder_pan,shoulder_lift,elbow_flex,wrist_flex,wrist_roll,gripper"
VLM = {
    "text_config": {
        "model_type": "llama", "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 512, "rope_theta": 100000,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu", "pad_token_id": 2,
    },
    "vision_config": {
        "model_type": "smolvlm_vision", "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 3, "image_size": 128, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
    },
    "scale_factor": 2,
    "image_token_id": 490,
}  # fmt: skip


def features(cameras, size):
    from lerobot.configs.types import FeatureType, PolicyFeature

    inputs = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *size)) for name in cameras}
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (6,))
    return inputs, {"action": PolicyFeature(FeatureType.ACTION, (6,))}


def statistics(cameras):
    rng = np.random.default_rng(0)

    def one(shape):
        return {
            "mean": torch.tensor(rng.uniform(-0.3, 0.3, shape), dtype=torch.float32),
            "std": torch.tensor(rng.uniform(0.4, 0.9, shape), dtype=torch.float32),
        }

    return {"observation.state": one(6), "action": one(6)} | {
        f"observation.images.{c}": one((3, 1, 1)) for c in cameras
    }


def observation(size, seed=0):
    rng = np.random.default_rng(seed)
    images = {name: rng.integers(0, 256, (*size, 3), dtype=np.uint8) for name in ("front", "wrist")}
    return Observation(0.0, images, rng.uniform(-0.5, 0.5, 6), "pick up the red cube")


def batch_of(seen, stats, normalise_images):
    """The same observation as LeRobot's processors would hand it to the model."""
    state = torch.tensor(seen.state, dtype=torch.float32)
    batch = {
        "observation.state": ((state - stats["observation.state"]["mean"]) / stats["observation.state"]["std"])[None]
    }
    for name, image in seen.images.items():
        pixels = torch.tensor(image).permute(2, 0, 1).float() / 255
        key = f"observation.images.{name}"
        batch[key] = ((pixels - stats[key]["mean"]) / stats[key]["std"] if normalise_images else pixels)[None]
    return batch


def export(checkpoint, out, *more):
    arguments = [
        "export",
        str(checkpoint),
        "--out",
        str(out),
        "--joints",
        JOINTS,
        "--fps",
        "30",
        "--discrete",
        "gripper",
    ]
    assert main([*arguments, *more]) == 0
    return load_policy(out, allow_unproven=True)


def normalised(policy, actions):
    return (actions - np.array(policy.bundle.policy.action.mean)) / np.array(policy.bundle.policy.action.std)


@pytest.fixture(scope="module")
def act(tmp_path_factory):
    without_torchvision_library()
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.factory import make_pre_post_processors

    torch.manual_seed(0)
    inputs, outputs = features(["front", "wrist"], (96, 128))
    config = ACTConfig(
        input_features=inputs, output_features=outputs, chunk_size=20, n_action_steps=20, dim_model=64, n_heads=2,
        dim_feedforward=128, n_encoder_layers=2, n_vae_encoder_layers=1, pretrained_backbone_weights=None, device="cpu",
    )  # fmt: skip
    policy = ACTPolicy(config).eval()
    stats = statistics(["front", "wrist"])
    folder = tmp_path_factory.mktemp("act")
    policy.save_pretrained(folder / "checkpoint")
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder / "checkpoint")
    return policy, stats, export(folder / "checkpoint", folder / "bundle")


@pytest.mark.parametrize("seed", range(3))
def test_act_equals_lerobot(act, seed):
    theirs, stats, ours = act
    seen = observation((96, 128), seed)
    with torch.no_grad():
        want = theirs.predict_action_chunk(batch_of(seen, stats, normalise_images=True))[0].numpy()
    assert normalised(ours, ours.infer(seen).actions) == pytest.approx(want, abs=1e-4)


def test_act_bundle_says_what_it_is(act):
    policy = act[2].bundle.policy
    assert policy.family == "direct" and policy.horizon == 20 and policy.dt_s == pytest.approx(1 / 30)
    assert [camera.name for camera in policy.cameras] == ["front", "wrist"]


@pytest.fixture(scope="module", params=["cross", "self", "special"])
def smolvla(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("smolvla")
    (folder / "checkpoint/vlm").mkdir(parents=True)
    vlm_tokenizer = {
        "added_tokens": [{"content": "<fake_token_around_image>", "id": 7}, {"content": "<global-img>", "id": 9}]
    }
    (folder / "checkpoint/vlm/tokenizer.json").write_text(json.dumps(vlm_tokenizer))
    stats = statistics(["front", "wrist"])
    policy = write_checkpoint(
        folder / "checkpoint", VLM, cameras={"front": (96, 128), "wrist": (96, 128)}, words=word_tokenizer(),
        statistics=stats, seed=1, num_vlm_layers=4, num_steps=5, resize_imgs_with_padding=(128, 128),
        tokenizer_max_length=12, chunk_size=20, n_action_steps=20, self_attn_every_n_layers=2,
        attention_mode="self_attn" if request.param == "self" else "cross_attn",
        add_image_special_tokens=request.param == "special",
    )  # fmt: skip
    return policy, stats, export(folder / "checkpoint", folder / "bundle")


@pytest.mark.parametrize("seed", range(2))
def test_smolvla_equals_lerobot_with_the_same_noise(smolvla, seed):
    theirs, stats, ours = smolvla
    seen = observation((96, 128), seed)
    batch = batch_of(seen, stats, normalise_images=False)
    tokens, mask = ours._tokenizer.encode(seen.instruction)
    batch["observation.language.tokens"] = torch.tensor(tokens)
    batch["observation.language.attention_mask"] = torch.tensor(mask)
    noise = ours.noise(seed)
    theirs.reset()
    want = theirs.predict_action_chunk(batch, noise=torch.tensor(noise))[0].numpy()
    got = normalised(ours, ours.infer(seen, seed=seed).actions)
    assert got == pytest.approx(want, abs=1e-4)


def test_smolvlas_prefix_is_computed_once(smolvla):
    _, _, ours = smolvla
    calls = []
    for stage, engine in list(ours.engines.items()):
        run = engine.run
        engine.run = lambda tensors, stage=stage, run=run: calls.append(stage) or run(tensors)
    ours.infer(observation((96, 128)), seed=0)
    assert calls == ["vision", "backbone"] + ["action"] * 5


def test_mistakes_are_named(act, smolvla, tmp_path, capsys):
    checkpoint = act[2].bundle.path.parent / "checkpoint"
    for arguments, code, word in (
        (["--joints", "a,b"], 1, "--joints names 2 joints"),
        (["--joints", JOINTS, "--fps", "0"], 2, "--fps is 0.0"),
    ):
        base = ["export", str(checkpoint), "--out", str(tmp_path / "x")]
        assert main([*base, *([] if "--fps" in arguments else ["--fps", "30"]), *arguments]) == code
        assert word in capsys.readouterr().err
    base = ["export", str(tmp_path), "--out", str(tmp_path / "y"), "--joints", JOINTS, "--fps", "30"]
    assert main(base) == 1
    assert "config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"type": "pi9"}')
    assert main(base) == 1
    assert "'pi9'" in capsys.readouterr().err


def test_pi0_names_the_environment_it_needs(tmp_path, capsys):
    if importlib.util.find_spec("lerobot.policies.pi_gemma"):
        pytest.skip("this environment has what pi0 needs")
    inputs = {"observation.images.front": {"type": "VISUAL", "shape": [3, 48, 64]}}
    inputs["observation.state"] = {"type": "STATE", "shape": [6]}
    outputs = {"action": {"type": "ACTION", "shape": [6]}}
    config = {"type": "pi0", "input_features": inputs, "output_features": outputs}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "b"), "--joints", JOINTS, "--fps", "30"]) == 1
    assert "make setup-peers-pi" in capsys.readouterr().err


def test_the_bench_runs_both_in_turns_on_the_same_inputs(smolvla):
    import sys
    from pathlib import Path

    from vla_runtime.toolchain.against.lerobot import compare

    _, _, ours = smolvla
    bundle = ours.bundle
    made = compare(
        [(bundle, "onnxruntime")], bundle.path.parent / "checkpoint", threads=1, rounds=2,
        python=Path(sys.executable),
    )  # fmt: skip
    contenders, ours_label = made["contenders"], f"{bundle.policy.name} onnxruntime"
    assert set(contenders) == {ours_label, "lerobot fp32", "lerobot bf16"}
    assert contenders[ours_label]["max_abs_difference"] < 1e-4
    assert 1e-4 < contenders["lerobot bf16"]["max_abs_difference"] < 0.5
    fastest = min(contenders[f"lerobot {each}"]["p50_ms"] for each in ("fp32", "bf16"))
    assert made["speed_up"][ours_label] == pytest.approx(fastest / contenders[ours_label]["p50_ms"])


def test_the_bench_refuses_other_weights(smolvla, act):
    from vla_runtime.errors import UserError
    from vla_runtime.toolchain.against.lerobot import compare

    other = act[2].bundle.path.parent / "checkpoint"
    with pytest.raises(UserError, match="not the file that"):
        compare([(smolvla[2].bundle, "onnxruntime")], other, threads=1, rounds=1)
