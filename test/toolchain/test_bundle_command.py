import argparse
import json
from pathlib import Path

import pytest
import yaml

from vla_runtime.cli import main
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.errors import UnprovenEngineError
from vla_runtime.policy.proof import require_proof
from vla_runtime.toolchain.bundle_command import schema_text
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


def test_committed_schema_is_that_of_the_models():
    committed = (DOCS / "policy.schema.json").read_text()
    assert committed == schema_text(), "run `vla bundle schema > docs/policy.schema.json`"


def test_every_field_is_explained_in_the_docs():
    text = (DOCS / "bundles.md").read_text()
    for field in PolicyModel.model_fields:
        assert f"`{field}`" in text or f"`{field}[]`" in text, field


def test_check_says_sound_and_proven(bundle, capsys):
    assert main(["bundle", "check", str(bundle)]) == 0
    out = capsys.readouterr().out
    assert "sound (4 files" in out and "proven for onnxruntime" in out


def test_check_says_what_is_not_proven(tmp_path, capsys):
    bundle = write_tiny_bundle(tmp_path, proven=False)
    assert main(["bundle", "check", str(bundle)]) == 0
    assert f"no parity.json; run `vla parity {bundle}` before" in capsys.readouterr().out


def test_the_command_that_proves_a_quantised_bundle_has_its_reference(tmp_path, capsys):
    bundle = write_tiny_bundle(tmp_path, proven=False)
    policy = yaml.safe_load((bundle / "policy.yaml").read_text())
    policy["provenance"]["quantized_from"] = {"name": "the original"}
    (bundle / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))
    assert main(["bundle", "check", str(bundle)]) == 0
    assert f"`vla parity {bundle} --reference FIRST_BUNDLE`" in capsys.readouterr().out
    with pytest.raises(UnprovenEngineError, match="--reference FIRST_BUNDLE --engine onnxruntime"):
        require_proof(load_bundle(bundle), "onnxruntime")


def test_show_lists_what_matters(bundle, capsys):
    assert main(["bundle", "show", str(bundle)]) == 0
    out = capsys.readouterr().out
    for word in ("front", "wrist", "shoulder_pan", "50 steps of 20 ms", "vision.onnx", "float32[1, 50, 6]", "flow"):
        assert word in out


def test_json_form(bundle, capsys):
    assert main(["bundle", "show", str(bundle), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["horizon"] == 50 and facts["stages"]["action"]["outputs"] == {"v": "float32[1, 50, 6]"}
    # Two convolutions' worth of floats and a few shape constants; counted by hand for the vision stage.
    assert facts["stages"]["vision"]["weight_bytes"] == 16 * 3 * 8 * 8 * 4 + 2 * 3 * 8


def test_a_user_mistake_is_one_line_and_exit_code_1(bundle, tmp_path, capsys):
    assert main(["bundle", "check", str(tmp_path / "none")]) == 1
    err = capsys.readouterr().err
    assert "no such directory" in err and "Traceback" not in err


def test_wrong_usage_is_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bundle", "juggle"])
    assert caught.value.code == 2


def test_schema_command_prints_the_schema(capsys):
    from vla_runtime.toolchain.bundle_command import run

    assert run(argparse.Namespace(what="schema")) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "PolicyModel"
