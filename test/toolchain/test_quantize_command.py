import numpy as np
import pytest

from vla_runtime.cli import main
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.errors import UnprovenEngineError
from vla_runtime.policy.policy import load_policy
from vla_runtime.toolchain.bundle_files import list_file
from vla_runtime.toolchain.observations import ObservationSet, random_observations, save_observations
from vla_runtime.toolchain.quantize.calibration import choose
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle
from vla_runtime.toolchain.weights import weight_bytes


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    made = write_tiny_bundle(tmp_path_factory.mktemp("quantize") / "tiny", width=256, proven=False)
    answers = random_observations(load_bundle(made).policy, 2)
    save_observations(made / "reference.safetensors", answers, "test")
    return list_file(made, "reference.safetensors").path


@pytest.fixture(scope="module")
def made(bundle, tmp_path_factory):
    out = tmp_path_factory.mktemp("quantize") / "int4"
    observations = out.parent / "observations.safetensors"
    save_observations(observations, random_observations(load_bundle(bundle).policy, 24), "test")
    assert main(["quantize", str(bundle), "--out", str(out), "--observations", str(observations), "--count", "16"]) == 0
    return out


def test_the_new_bundle_is_sound_smaller_and_says_where_it_comes_from(bundle, made):
    loaded, source = load_bundle(made), load_bundle(bundle)
    assert loaded.policy.stages["backbone"].precision == "int4"
    assert weight_bytes(loaded.stage_path("backbone")) < 0.3 * weight_bytes(source.stage_path("backbone"))
    provenance = loaded.policy.provenance
    assert provenance["quantized_from"]["backbone.onnx"] == source.policy.files["backbone.onnx"]
    layer = provenance["quantization"]["layers"]["mixed"]
    assert layer["error"] < layer["rtn_error"] and layer["block"] == 128
    assert provenance["quantization"]["count"] == 16
    answers = "reference.safetensors"
    assert loaded.hashes()[answers] == source.hashes()[answers] and (made / answers).is_file()


def test_it_must_prove_itself_anew(made):
    with pytest.raises(UnprovenEngineError, match="no parity record"):
        load_policy(made)


def test_it_does_nearly_the_same_and_awq_is_nearer_than_rounding(bundle, made, tmp_path):
    assert (
        main(["quantize", str(bundle), "--out", str(tmp_path / "rtn"), "--method", "rtn", "--random", "--count", "4"])
        == 0
    )
    policies = [load_policy(path, allow_unproven=True) for path in (bundle, made, tmp_path / "rtn")]
    unseen = random_observations(policies[0].bundle.policy, 8, seed=77)
    chunks = [np.stack([p.infer(o, seed=1).actions for o in unseen.observations]) for p in policies]
    awq, rtn = (np.sqrt(np.mean((each - chunks[0]) ** 2)) for each in chunks[1:])
    assert awq < 0.02 and awq < rtn


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--stage", "brain"], "'brain'"),
        (["--block", "100"], "--block is 100"),
        (["--count", "0"], "--count is 0"),
        ([], "--observations"),
    ],
)
def test_mistakes_are_named(bundle, tmp_path, capsys, arguments, word):
    assert main(["quantize", str(bundle), "--out", str(tmp_path / "x"), *arguments]) == 2
    assert word in capsys.readouterr().err


def test_it_overwrites_nothing_and_does_not_quantise_twice(bundle, made, tmp_path, capsys):
    assert main(["quantize", str(bundle), "--out", str(made), "--random"]) == 1
    assert "not empty" in capsys.readouterr().err
    assert main(["quantize", str(made), "--out", str(tmp_path / "again"), "--random"]) == 1
    assert "int4 already" in capsys.readouterr().err


def test_rare_poses_and_instructions_are_in_the_calibration(bundle):
    made = random_observations(load_bundle(bundle).policy, 100, seed=2)
    for each in made.observations:
        each.state[:] *= 0.01
    made.observations[37].state[:] = 1.5
    rare = made.observations[61].__class__(
        0.0, made.observations[61].images, made.observations[61].state, "lift the block"
    )
    observations = [*made.observations[:61], rare, *made.observations[62:]]
    chosen = choose(ObservationSet(observations, "x", np.arange(100)), 10)
    assert len(chosen) == 10 and {37, 61} <= set(chosen.seeds.tolist())
    assert len(choose(made, 1000)) == 100
