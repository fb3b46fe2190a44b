"""OpenVLA's stages against timm's towers and transformers' greedy generation; AutoAWQ's weights. Peers' environment."""

import json

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (make test-peers)")

from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library  # noqa: E402

without_torchvision_library()
timm = pytest.importorskip("timm", reason="timm is not installed (make test-peers)")

from vla_runtime.cli import main  # noqa: E402
from vla_runtime.policy.policy import Observation, load_policy  # noqa: E402

VOCABULARY, PADDED, BINS, TOKENS, JOINTS, SIZE = 448, 512, 256, 16, 7, 64
NAMES = ",".join(f"joint_{i}" for i in range(JOINTS))
TEXT = {
    "model_type": "llama", "vocab_size": PADDED, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}  # fmt: skip
MEANS, STDS = [[0.485, 0.456, 0.406], [0.5, 0.5, 0.5]], [[0.229, 0.224, 0.225], [0.5, 0.5, 0.5]]
PACKED = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ: nibble i of a word belongs to this output


def louder(model):
    """Larger weights than at birth: otherwise the greedy choice hardly depends on what comes in."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(4.0)
    return model.eval()


def write_words(path):
    words = {"w0": 0} | {f"w{i}": i for i in range(1, VOCABULARY - BINS)}
    first = {"SpecialToken": {"id": "w1", "type_id": 0}}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": None,
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
            "special_tokens": {"w1": {"id": "w1", "ids": [1], "tokens": ["w1"]}},
        },
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }))  # fmt: skip


class Reference:
    """What OpenVLA's own code computes, from timm's and transformers' parts."""

    def __init__(self, fused: bool):
        torch.manual_seed(0)
        names = ["test_vit", "test_vit2"][: 1 + fused]
        self.names = names
        self.towers = [timm.create_model(each, pretrained=False, num_classes=0, img_size=SIZE).eval() for each in names]
        width, hidden = sum(each.embed_dim for each in self.towers), TEXT["hidden_size"]
        sizes = [width, 4 * width, hidden, hidden] if fused else [width, hidden, hidden]
        self.projector = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
        self.llama = louder(transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)))

    def state_dict(self):
        found = {f"language_model.{name}": value for name, value in self.llama.state_dict().items()}
        for part, tower in zip(("featurizer", "fused_featurizer"), self.towers):
            for name, value in tower.state_dict().items():
                found[f"vision_backbone.{part}.{name}".replace(".gamma", ".scale_factor")] = value
        for index, layer in enumerate(self.projector):
            found |= {f"projector.fc{index + 1}.{name}": value for name, value in layer.state_dict().items()}
        return {name: value.clone() for name, value in found.items()}

    def tokens(self, image: np.ndarray, ids: list[int]) -> np.ndarray:
        pixels = torch.tensor(image).permute(2, 0, 1)[None].float() / 255
        seen = []
        for tower, mean, std in zip(self.towers, MEANS, STDS):
            own = (pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
            _, layers = tower.forward_intermediates(own, indices=[len(tower.blocks) - 2], output_fmt="NLC")
            seen.append(layers[0])
        x = torch.cat(seen, 2)
        for index, layer in enumerate(self.projector):
            x = layer(torch.nn.functional.gelu(x) if index else x)
        words = self.llama.get_input_embeddings()(torch.tensor([ids]))
        x = torch.cat([words[:, :1], x, words[:, 1:]], 1)
        only_bins = torch.full((PADDED,), -torch.inf)
        only_bins[VOCABULARY - BINS : VOCABULARY] = 0

        class OnlyBins(transformers.LogitsProcessor):
            def __call__(self, input_ids, scores):
                return scores + only_bins

        made = self.llama.generate(
            inputs_embeds=x, attention_mask=torch.ones(x.shape[:2], dtype=torch.long), max_new_tokens=JOINTS,
            do_sample=False, pad_token_id=0, eos_token_id=None,
            logits_processor=transformers.LogitsProcessorList([OnlyBins()]),
        )  # fmt: skip
        return made[0].numpy()


def write_checkpoint(folder, tensors, config):
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    # In two shards with an index, as large models come.
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, str(folder / file))
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    write_words(folder / "tokenizer.json")
    return folder


def export(folder, out):
    assert main(["export", str(folder), "--out", str(out), "--joints", NAMES, "--fps", "5"]) == 0
    return load_policy(out, allow_unproven=True)


def config_of(reference):
    stats = {"robot": {"action": {"q01": [-0.5] * JOINTS, "q99": [1.5] * JOINTS}}}
    return {
        "model_type": "openvla", "text_config": TEXT, "timm_model_ids": reference.names, "n_action_bins": BINS,
        "image_sizes": [SIZE] * len(reference.names), "pad_to_multiple_of": PADDED - VOCABULARY, "norm_stats": stats,
        "max_prompt_tokens": TOKENS, "prompt_template": "{instruction}",
    }  # fmt: skip


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "single"])
def made(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("openvla")
    reference = Reference(request.param)
    checkpoint = write_checkpoint(folder / "checkpoint", reference.state_dict(), config_of(reference))
    return reference, export(checkpoint, folder / "bundle")


def situations(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        words = [int(each) for each in rng.integers(2, VOCABULARY - BINS, rng.integers(1, TOKENS - 1))]
        yield coarse.repeat(8, 0).repeat(8, 1), words


def bins_of(ours, image, words):
    text = " ".join(f"w{each}" for each in words)
    return ours.decode(ours.context(Observation(0.0, {"front": image}, np.zeros(JOINTS), text), np.zeros(JOINTS), {}))


def test_tokens_are_those_of_greedy_generation_on_200_prompts_with_pictures(made):
    reference, ours = made
    seen = set()
    for image, words in situations(200):
        with torch.no_grad():
            want = reference.tokens(image, [1, *words])
        assert (VOCABULARY - 1 - bins_of(ours, image, words) == want).all()
        seen.add(tuple(want))
    assert len(seen) > 50  # what is seen and said matters


def test_the_picture_matters(made):
    _, ours = made
    pictures = [image for image, _ in situations(12)]
    assert len({tuple(bins_of(ours, image, [5, 6, 7])) for image in pictures}) > 1


def pack(values):
    """Eight outputs to a word, in AutoAWQ's order."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for nibble, place in enumerate(PACKED):
        words |= values[:, place::8].astype(np.uint32) << np.uint32(4 * nibble)
    return torch.tensor(np.ascontiguousarray(words.view(np.int32)))


def as_autoawq(tensors, symmetric, group=128):
    """Quantise every linear of the decoder's layers as AutoAWQ stores it; return (tensors, what they stand for)."""
    packed, floats = dict(tensors), dict(tensors)
    for name in [each for each in tensors if ".layers." in each and each.endswith("proj.weight")]:
        weight = tensors[name].numpy().T
        grouped = weight.reshape(-1, group, weight.shape[1])
        low, high = grouped.min(1), grouped.max(1)
        if symmetric:
            scale = np.maximum(np.abs(low), np.abs(high)) / 7
            zero = np.full_like(scale, 8)
        else:
            scale = (high - low) / 15
            zero = np.rint(-low / scale)
        scale = scale.astype(np.float16).astype(np.float32)
        q = np.clip(np.rint(grouped / scale[:, None]) + zero[:, None], 0, 15)
        back = ((q - zero[:, None]) * scale[:, None]).reshape(weight.shape)
        base = name.removesuffix(".weight")
        del packed[name]
        packed |= {
            f"{base}.qweight": pack(q.reshape(weight.shape)),
            f"{base}.qzeros": pack(np.broadcast_to(zero, scale.shape)),
            f"{base}.scales": torch.tensor(scale).half().contiguous(),
        }
        floats[name] = torch.tensor(np.ascontiguousarray(back.T), dtype=torch.float32)
    return packed, floats


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
def test_autoawqs_weights_become_int4_stages(tmp_path, symmetric, capsys):
    from vla_runtime.engines.settings import EngineSettings

    reference = Reference(fused=False)
    packed, floats = as_autoawq(reference.state_dict(), symmetric)
    quantiser = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": not symmetric, "version": "gemm"}
    config = config_of(reference) | {"quantization_config": quantiser}
    export(write_checkpoint(tmp_path / "checkpoint", packed, config), tmp_path / "bundle")
    said = capsys.readouterr().out
    policy = yaml.safe_load((tmp_path / "bundle/policy.yaml").read_text())
    precision = {name: stage["precision"] for name, stage in policy["stages"].items()}
    assert precision == {"vision": "fp32", "backbone": "int4", "action_decode": "int4"}
    cost = policy["provenance"]["quantization"]["cost"]
    assert len(cost) == 7 * TEXT["num_hidden_layers"]
    if symmetric:
        assert set(cost.values()) == {0.0} and "0 of them asymmetric" in said
    else:
        assert all(0.01 < each < 0.15 for each in cost.values()) and "14 of them asymmetric" in said
        return
    # Nothing was rounded again: the tokens are those of the numbers that AutoAWQ's weights stand for.
    reference.llama.load_state_dict(
        {name.removeprefix("language_model."): v for name, v in floats.items() if name.startswith("language_model.")}
    )
    exact = load_policy(tmp_path / "bundle", allow_unproven=True, settings=EngineSettings(exact=True))
    for image, words in situations(20):
        with torch.no_grad():
            want = reference.tokens(image, [1, *words])
        assert (VOCABULARY - 1 - bins_of(exact, image, words) == want).all()


def test_mistakes_are_named(tmp_path, capsys):
    reference = Reference(fused=False)
    checkpoint = write_checkpoint(tmp_path / "checkpoint", reference.state_dict(), config_of(reference))
    base = ["export", str(checkpoint), "--joints", NAMES, "--fps", "5", "--out", str(tmp_path / "x")]
    path = checkpoint / "config.json"
    good = json.loads(path.read_text())
    for change, word in (
        ({"timm_model_ids": ["test_vit9"]}, "test_vit9"),
        ({"text_config": TEXT | {"hidden_size": 64}}, "config.json needs"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"n_action_bins": 4096}, "4096 bins"),
    ):
        path.write_text(json.dumps(good | change))
        assert main(base) == 1
        assert word in capsys.readouterr().err
    path.write_text(json.dumps(good))
    (checkpoint / "model-00002-of-00002.safetensors").unlink()
    assert main(base) == 1
    assert "model-00002-of-00002.safetensors" in capsys.readouterr().err
