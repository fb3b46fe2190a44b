"""What `vla bench policy --against lerobot` refuses before anything runs; the comparison itself needs LeRobot."""

import pytest
import yaml

from vla_runtime.cli import main
from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import load_bundle, sha256_of
from vla_runtime.toolchain.against.lerobot import check
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture
def exported(tmp_path):
    """A bundle that says it was exported from a SmolVLA checkpoint, and that checkpoint's directory."""
    weights = tmp_path / "checkpoint/model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    bundle = write_tiny_bundle(tmp_path / "bundle", proven=False)
    path = bundle / "policy.yaml"
    content = yaml.safe_load(path.read_text())
    content["provenance"] = {"checkpoint": "smolvla", "weights": {weights.name: sha256_of(weights)}}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_bundle(bundle), weights.parent


def test_the_checkpoint_must_be_named(exported, capsys):
    assert main(["bench", "policy", str(exported[0].path), "--against", "lerobot"]) == 2
    assert "--checkpoint DIR" in capsys.readouterr().err


def test_the_bundle_must_come_from_these_weights(exported, tmp_path):
    bundle, checkpoint = exported
    python = tmp_path / "python"
    python.touch()
    assert check(bundle, checkpoint, python) == "smolvla"
    (checkpoint / "model.safetensors").write_bytes(b"others")
    with pytest.raises(UserError, match=r"model\.safetensors is not the file that"):
        check(bundle, checkpoint, python)


def test_a_missing_environment_is_named(exported, tmp_path):
    with pytest.raises(UserError, match="make setup-peers"):
        check(*exported, tmp_path / "nowhere/python")


def test_a_bundle_of_another_origin_is_refused(tmp_path):
    bundle = load_bundle(write_tiny_bundle(tmp_path / "bundle", proven=False))
    with pytest.raises(UserError, match="not exported from one of LeRobot's"):
        check(bundle, tmp_path)
