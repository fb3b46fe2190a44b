"""Bundles of pi0 and pi0.5 against LeRobot's own answers, processors included (`make test-peers-pi`).

The models are LeRobot's classes with random weights and fewer, narrower layers: its constructors know the real sizes
alone, so what they ask for is replaced while they run.
"""

import json
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the peers' environment: make test-peers-pi")
pytest.importorskip("lerobot.policies.pi_gemma", reason="LeRobot 0.6 is not installed (make test-peers-pi)")

from safetensors.torch import load_file, save_file  # noqa: E402

from vla_runtime.cli import main  # noqa: E402
from vla_runtime.policy.policy import Observation, load_policy  # noqa: E402
from vla_runtime.toolchain.export import lerobot_load  # noqa: E402

JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
STATE = "observation.state"
SIZE = (48, 64)  # height and width of the pictures; the model sees 56 x 56
PROMPTS = ["pick up the red cube", "fold_the towel ", "open the drawer"]
CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n"]
VOCABULARY = {token: i for i, token in enumerate(["<pad>", "<unk>", "<bos>", *CHARACTERS])}


def character_tokenizer():
    """A tokenizer of single characters behind a <bos>, as PaliGemma's has: every digit of a state counts."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", VOCABULARY["<bos>"])])
    return made


@contextmanager
def reduced(kind):
    """Let LeRobot's constructor of ``kind`` build a small model, and its processors use our tokenizer."""
    from transformers import PreTrainedTokenizerFast

    model = import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    processor = import_module(f"lerobot.policies.{kind}.processor_{kind}")
    paligemma, gemma = model.PaliGemmaForConditionalGenerationWithPiGemma, model.PiGemmaForCausalLM
    step = processor.TokenizerProcessorStep
    widths = {"gemma_2b": (64, 160), "gemma_300m": (48, 96)}

    def sizes(variant):
        width, inner = widths[variant]
        return model.GemmaConfig(width, depth=3, mlp_dim=inner, num_heads=4, num_kv_heads=1, head_dim=16)

    def small_paligemma(config):
        vision = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3}
        for name, value in {**vision, "projection_dim": 64}.items():
            setattr(config.vision_config, name, value)
        config.text_config.vocab_size = len(VOCABULARY)
        return paligemma(config=config)

    def small_gemma(config):
        config.vocab_size = len(VOCABULARY)
        return gemma(config=config)

    def tokenize(tokenizer_name, **options):
        words = PreTrainedTokenizerFast(tokenizer_object=character_tokenizer(), pad_token="<pad>", bos_token="<bos>")
        return step(tokenizer=words, **options)

    with (
        mock.patch.object(model, "get_gemma_config", sizes),
        mock.patch.object(model, "PaliGemmaForConditionalGenerationWithPiGemma", small_paligemma),
        mock.patch.object(model, "PiGemmaForCausalLM", small_gemma),
        mock.patch.object(processor, "TokenizerProcessorStep", tokenize),
    ):
        yield


def statistics():
    rng = np.random.default_rng(0)

    def one():
        middle, half = rng.uniform(-0.3, 0.3, 6), rng.uniform(0.4, 0.9, 6)
        each = {"mean": middle, "std": half, "q01": middle - half, "q99": middle + half}
        return {name: torch.tensor(value, dtype=torch.float32) for name, value in each.items()}

    return {STATE: one(), "action": one()}


def write_checkpoint(kind, folder, cameras, **choices):
    """Write a checkpoint with its processors through LeRobot; return its policy and the two pipelines."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_policy_config, make_pre_post_processors

    torch.manual_seed(7)
    inputs = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *SIZE)) for name in cameras}
    config = make_policy_config(
        kind, input_features={**inputs, STATE: PolicyFeature(FeatureType.STATE, (6,))},
        output_features={"action": PolicyFeature(FeatureType.ACTION, (6,))}, device="cpu", image_resolution=(56, 56),
        chunk_size=12, n_action_steps=12, num_inference_steps=5, max_state_dim=8, max_action_dim=8,
        tokenizer_max_length=90, **choices,
    )  # fmt: skip
    policy = import_module("lerobot.policies.factory").get_policy_class(kind)(config).eval()
    for parameter in policy.parameters():  # zeros too: norms and their conditions begin as such
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    policy.save_pretrained(folder)
    pipelines = make_pre_post_processors(config, dataset_stats=statistics())
    for pipeline in pipelines:
        pipeline.save_pretrained(folder)
    character_tokenizer().save(str(folder / "tokenizer.json"))
    return policy, *pipelines


def export(checkpoint, out):
    base = ["export", str(checkpoint), "--out", str(out), "--joints", ",".join(JOINTS), "--fps", "30"]
    return main([*base, "--discrete", "gripper"])


CASES = {
    "pi0, one camera": ("pi0", ["front"], {}),
    "pi0, two cameras": ("pi0", ["front", "wrist"], {}),
    "pi0, an empty camera": ("pi0", ["front"], {"empty_cameras": 1}),
    "pi0.5, one camera": ("pi05", ["front"], {}),
    "pi0.5, two cameras": ("pi05", ["front", "wrist"], {}),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """LeRobot's policy with its pipelines, and ours, exported from what it saved."""
    kind, cameras, choices = CASES[request.param]
    folder = tmp_path_factory.mktemp(kind)
    with reduced(kind):
        policy, before, after = write_checkpoint(kind, folder / "checkpoint", cameras, **choices)
        assert export(folder / "checkpoint", folder / "bundle") == 0
    ours = load_policy(folder / "bundle", allow_unproven=True)
    return SimpleNamespace(kind=kind, cameras=cameras, policy=policy, before=before, after=after, ours=ours)


def observation(cameras, seed, prompt=None):
    """A random scene; some joints lie beyond the statistics' quantiles."""
    rng = np.random.default_rng(seed)
    images = {name: rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8) for name in cameras}
    return Observation(0.0, images, rng.uniform(-1.4, 1.4, 6), prompt or PROMPTS[seed % len(PROMPTS)])


def batch_of(pair, seen):
    """What LeRobot's own pipeline hands to the model."""
    raw = {f"observation.images.{n}": torch.tensor(i).permute(2, 0, 1) / 255 for n, i in seen.images.items()}
    return pair.before({**raw, STATE: torch.tensor(seen.state, dtype=torch.float32), "task": seen.instruction})


@pytest.mark.parametrize("seed", range(4))
def test_chunks_equal_lerobots_with_the_same_noise(pair, seed):
    seen = observation(pair.cameras, seed)
    batch = batch_of(pair, seen)
    want = pair.policy.predict_action_chunk(batch, noise=torch.tensor(pair.ours.noise(seed)))
    found = pair.ours.infer(seen, seed=seed).actions
    action = pair.ours.bundle.policy.action
    normalised = (found - np.array(action.mean)) / np.array(action.std)
    assert normalised == pytest.approx(want[0].numpy(), abs=1e-4)
    assert found == pytest.approx(pair.after(want)[0].numpy(), abs=1e-4)


def test_prompts_become_lerobots_tokens(pair):
    for seed, prompt in enumerate(PROMPTS):
        seen = observation(pair.cameras, seed, prompt)
        batch, ours = batch_of(pair, seen), pair.ours.inputs(seen, seen.state)
        assert ours["text_tokens"].tolist() == batch["observation.language.tokens"].tolist()
        assert ours["text_mask"].tolist() == batch["observation.language.attention_mask"].tolist()


def test_the_answer_depends_on_all_that_is_read(pair):
    """Or its equality would say little."""
    seen = observation(pair.cameras, 0)
    other = observation(pair.cameras, 1)
    changes = [{"state": other.state}, {"instruction": other.instruction}]
    changes += [{"images": {**seen.images, name: other.images[name]}} for name in pair.cameras]
    base = pair.ours.infer(seen, seed=0).actions
    for change in changes:
        changed = Observation(**{**vars(seen), **change})
        assert np.abs(pair.ours.infer(changed, seed=0).actions - base).max() > 1e-2, change.keys()


def test_the_bundle_says_what_it_is(pair):
    policy = pair.ours.bundle.policy
    assert policy.family == "flow" and policy.horizon == 12 and policy.sampler.steps == 5
    assert [camera.name for camera in policy.cameras] == pair.cameras
    reads_state = "state" in policy.stages["action"].inputs
    assert reads_state == (pair.kind == "pi0") and reads_state == (policy.instruction.state is None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    with reduced("pi0"):
        write_checkpoint("pi0", folder, ["front"])
    return folder


def copy_with(checkpoint, folder, **changes):
    for file in checkpoint.iterdir():
        (folder / file.name).symlink_to(file)
    config = folder / "config.json"
    content = json.loads(config.read_text())
    config.unlink()
    config.write_text(json.dumps({**content, **changes}))
    return folder


def test_weights_under_openpis_names_are_found(checkpoint, tmp_path):
    words = "model.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
    head = "model.paligemma_with_expert.paligemma.lm_head.weight"
    saved = load_file(checkpoint / "model.safetensors")
    copy = copy_with(checkpoint, tmp_path)
    (copy / "model.safetensors").unlink()
    saved[head] = saved.pop(words)
    save_file({name.removeprefix("model."): value for name, value in saved.items()}, copy / "model.safetensors")
    with reduced("pi0"):
        want, found = (lerobot_load.load_policy(each, "pi0").state_dict() for each in (checkpoint, copy))
    unequal = {name for name, value in want.items() if not torch.equal(value, found[name])}
    assert unequal == {head}  # nobody reads it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_relative_actions": True}, "use_relative_actions"),
        ({"normalization_mapping": {"VISUAL": "MEAN_STD"}}, "VISUAL must be IDENTITY"),
        ({"normalization_mapping": {"ACTION": "QUANTILE10"}}, "no statistics ('q10', 'q90') of 'action'"),
    ],
)
def test_what_a_bundle_cannot_say_is_refused(checkpoint, tmp_path, capsys, changes, words):
    (tmp_path / "copy").mkdir()
    copy = copy_with(checkpoint, tmp_path / "copy", **changes)
    with reduced("pi0"):
        assert export(copy, tmp_path / "bundle") == 1
    assert words in capsys.readouterr().err
