"""The demo's model and its losses. Needs the training environment (torch): skipped without it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the training environment (make setup-export) has torch")

from vla_runtime.paths import share  # noqa: E402
from vla_runtime.policy.bundle import load_bundle  # noqa: E402
from vla_runtime.toolchain.observations import load_observations, random_observations  # noqa: E402
from vla_runtime.toolchain.train_demo.export import example_inputs, export_stages, write_bundle  # noqa: E402
from vla_runtime.toolchain.train_demo.model import DemoVla, ModelConfig, smoothing  # noqa: E402
from vla_runtime.toolchain.train_demo.pool import MAX_DELAY, draw_delays, normalise  # noqa: E402
from vla_runtime.toolchain.train_demo.reference import write_reference  # noqa: E402
from vla_runtime.toolchain.train_demo.train import FLOW_STEPS, sample  # noqa: E402


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = DemoVla(ModelConfig()).eval()
    torch.nn.init.normal_(model.action.head.weight, std=0.1)  # it starts at zero, which would hide everything
    return model


def encoded(model, known, **changed):
    known = known | changed
    return model.encode(known["images"][None], known["text_tokens"], known["text_mask"], known["state"])


def test_sizes_are_within_the_budget_and_fit_groups_of_128(model):
    assert sum(p.numel() for p in model.parameters()) * 4 < 20e6
    blocks = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and ".blocks." in name]
    assert len(blocks) > 20
    assert all(m.in_features % 128 == 0 for m in blocks)


def test_padding_words_change_nothing(model):
    known = example_inputs(model)
    padded = known["text_tokens"].clone()
    padded[known["text_mask"] == 0] = 17
    a, b = encoded(model, known), encoded(model, known, text_tokens=padded)
    assert torch.allclose(a[3], b[3], atol=1e-5) and torch.allclose(a[4], b[4], atol=1e-5)


def test_the_backbone_is_causal(model):
    known = example_inputs(model)
    a, b = encoded(model, known), encoded(model, known, state=known["state"] + 1.0)
    for keys_a, keys_b in zip(a[0], b[0], strict=True):
        assert torch.allclose(keys_a[:, :, :-1], keys_b[:, :, :-1], atol=1e-6)
        assert not torch.allclose(keys_a[:, :, -1], keys_b[:, :, -1])


def test_the_instruction_reaches_the_actions(model):
    known = example_inputs(model)
    other = known["text_tokens"].clone()
    other[0, 3] += 1
    inputs = (known["images"][None], known["text_tokens"], known["text_mask"])
    changed = (known["images"][None], other, known["text_mask"])
    a, b = (sample(model, given, known["state"], known["x"]) for given in (inputs, changed))
    assert (a - b).abs().max() > 1e-4


def test_committed_actions_come_back_and_the_rest_goes_on_from_them(model):
    known = example_inputs(model)
    inputs = (known["images"][None], known["text_tokens"], known["text_mask"])
    committed = torch.randn(1, 7, 6)
    out = sample(model, inputs, known["state"], known["x"], committed)
    assert (out[:, :7] == committed).all()
    free = sample(model, inputs, known["state"], known["x"])
    assert (out[:, 7:] - free[:, 7:]).abs().max() > 1e-4


def test_the_last_flow_step_lands_on_the_predicted_chunk(model):
    known = example_inputs(model)
    keys, values, bias, condition, _, _ = encoded(model, known)
    time = torch.full((1, 50), 1 - 1 / FLOW_STEPS)
    given = (known["x"], time, keys, values, bias, condition, known["state"])
    assert torch.allclose(known["x"] + model.action(*given) / FLOW_STEPS, model.action.clean(*given), atol=1e-5)


def test_smoothing_keeps_constants_and_removes_jitter():
    matrix = smoothing(50, 2.0)
    assert torch.allclose(matrix.sum(1), torch.ones(50))
    jitter = torch.tensor([1.0, -1.0]).repeat(25)
    assert (matrix @ jitter)[5:-5].abs().max() < 0.01


def test_delays_cover_none_to_the_most_and_respect_what_is_given():
    rng = np.random.default_rng(0)
    delays = draw_delays(rng, np.zeros(2000, np.int64))
    assert set(delays) == set(range(MAX_DELAY + 1))
    assert 0.45 < (delays == 0).mean() < 0.55
    assert (draw_delays(rng, np.full(500, 6)) >= 6).all()


def test_pictures_are_normalised_as_the_bundle_says():
    picture = torch.full((1, 2, 4, 4, 3), 255, dtype=torch.uint8)
    assert normalise(picture).shape == (1, 2, 3, 4, 4)
    assert float(normalise(picture).max()) == pytest.approx(2.0)


def test_the_models_own_answers_are_kept_among_the_files_of_the_bundle(model, tmp_path):
    write_bundle(model, np.zeros(6), np.ones(6), tmp_path, share("config", "robots", "so101_sim.yaml"), {"seed": 0})
    bundle = load_bundle(tmp_path)
    assert "reference.safetensors" not in bundle.hashes()
    bundle = write_reference(model, bundle, random_observations(bundle.policy, 3))
    assert "reference.safetensors" in bundle.hashes() and bundle.policy.provenance == {"seed": 0}
    known = load_observations(bundle.file("reference.safetensors"), bundle.policy)
    assert known.actions.shape == (3, 50, 6) and known.tensors["v"].shape == (2, 1, 50, 6)


def test_exported_stages_agree_with_torch(model, tmp_path):
    entries = export_stages(model, tmp_path)  # raises when they differ by more than 1e-4
    assert entries["vision"]["outputs"]["image_tokens"]["shape"] == [1, 72, 128]
    assert entries["action"]["outputs"]["v"]["shape"] == [1, 50, 6]
    assert entries["backbone"]["inputs"]["text_tokens"]["dtype"] == "int64"
    for file in tmp_path.glob("*.onnx"):
        assert str(tmp_path).encode() not in file.read_bytes()
