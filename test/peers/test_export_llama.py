"""Action tokens of our stages against transformers' greedy generation. Runs in the peers' environment."""

import json
import shutil

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (make test-peers)")

from vla_runtime.cli import main  # noqa: E402
from vla_runtime.policy.policy import Observation, load_policy  # noqa: E402
from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library  # noqa: E402

without_torchvision_library()
VOCABULARY, BINS, TOKENS, JOINTS = 512, 256, 24, 7
NAMES = ",".join(f"joint_{i}" for i in range(JOINTS))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rope_theta=10000.0, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    # Larger weights than at birth: otherwise the greedy choice hardly depends on the prompt.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(4.0)
    model.save_pretrained(folder / "checkpoint")
    path = folder / "checkpoint/config.json"
    stats = {"robot": {"action": {"q01": [-0.5] * JOINTS, "q99": [1.5] * JOINTS}}}
    content = json.loads(path.read_text()) | {"max_prompt_tokens": TOKENS, "action_bins": BINS, "norm_stats": stats}
    path.write_text(json.dumps(content))
    vocabulary = {f"w{i}": i for i in range(VOCABULARY - BINS)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    arguments = ["export", str(folder / "checkpoint"), "--out", str(folder / "bundle"), "--joints", NAMES, "--fps", "5"]
    assert main([*arguments, "--tokenizer", str(folder / "tokenizer.json")]) == 0
    return model, load_policy(folder / "bundle", allow_unproven=True)


def prompts(count: int):
    rng = np.random.default_rng(0)
    return [
        " ".join(f"w{i}" for i in rng.integers(1, VOCABULARY - BINS, rng.integers(2, TOKENS))) for _ in range(count)
    ]


def test_tokens_are_those_of_greedy_generation_on_200_prompts(made):
    model, ours = made
    only_bins = torch.full((VOCABULARY,), -torch.inf)
    only_bins[VOCABULARY - BINS :] = 0

    class OnlyBins(transformers.LogitsProcessor):
        def __call__(self, input_ids, scores):
            return scores + only_bins

    seen = set()
    for prompt in prompts(200):
        ids = torch.tensor([[int(word[1:]) for word in prompt.split()]])
        with torch.no_grad():
            whole = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=JOINTS, do_sample=False, pad_token_id=0,
                eos_token_id=None, logits_processor=transformers.LogitsProcessorList([OnlyBins()]),
            )  # fmt: skip
        want = whole[0, ids.shape[1] :].numpy()
        context = ours.context(Observation(0.0, {}, np.zeros(JOINTS), prompt), np.zeros(JOINTS), {})
        assert (VOCABULARY - 1 - ours.decode(context) == want).all()
        seen.add(tuple(want))
    assert len(seen) > 50  # the prompts matter


def test_bins_become_radians_by_openvlas_rule(made):
    _, ours = made
    observation = Observation(0.0, {}, np.zeros(JOINTS), prompts(1)[0])
    bins = ours.decode(ours.context(observation, observation.state, {}))
    # OpenVLA: id = vocabulary - digit, digit = bin + 1; centre number clip(digit - 1, 0, bins - 2) of [-1, 1].
    edges = np.linspace(-1, 1, BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    want = 0.5 + centres[np.clip(bins, 0, BINS - 2)]
    assert ours.infer(observation).actions[0] == pytest.approx(want, abs=1e-6)


def test_int4_decode_picks_the_tokens_that_onnxruntimes_own_kernel_picks(made, tmp_path, monkeypatch):
    """Token after token through our product, and through the kernel that other processors have."""
    from vla_runtime.engines import onnxruntime_engine

    if onnxruntime_engine.find_library() is None:
        pytest.skip("our product is not compiled here, or the processor lacks its instructions")
    source = shutil.copytree(made[1].bundle.path, tmp_path / "source")
    manifest = yaml.safe_load((source / "policy.yaml").read_text())
    manifest["instruction"]["default"] = prompts(1)[0]
    (source / "policy.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    arguments = ["--stage", "action_decode", "--precision", "int4", "--method", "rtn", "--random"]
    assert main(["quantize", str(source), "--out", str(tmp_path / "int4"), *arguments]) == 0

    def tokens():
        policy = load_policy(tmp_path / "int4", allow_unproven=True)
        found = []
        for prompt in prompts(50):
            context = policy.context(Observation(0.0, {}, np.zeros(JOINTS), prompt), np.zeros(JOINTS), {})
            found.append(policy.decode(context))
        return policy.engines["action_decode"].version, np.array(found)

    version, ours = tokens()
    assert "own INT4 product" in version
    monkeypatch.setattr(onnxruntime_engine, "find_library", lambda: None)
    version, theirs = tokens()
    assert "own" not in version
    assert (ours == theirs).mean() > 0.99  # sums of another order: a tie may fall the other way
