import json

import pytest

from vla_runtime.policy.errors import BundleError, UnprovenEngineError
from vla_runtime.policy.policy import load_policy


def refusal(bundle) -> str:
    with pytest.raises(UnprovenEngineError) as caught:
        load_policy(bundle)
    return str(caught.value)


def change_record(bundle, **fields):
    path = bundle / "parity.json"
    content = json.loads(path.read_text())
    content["records"][0].update(fields)
    path.write_text(json.dumps(content))


def test_a_proven_bundle_loads(tiny_bundle):
    assert load_policy(tiny_bundle).engines["vision"].name == "onnxruntime"


def test_without_a_record_it_is_refused_with_the_command_that_mends_it(own_bundle):
    (own_bundle / "parity.json").unlink()
    text = refusal(own_bundle)
    assert "no parity record" in text and f"vla parity {own_bundle} --engine onnxruntime" in text
    load_policy(own_bundle, allow_unproven=True)


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_a_record_that_does_not_pass_is_refused(own_bundle, verdict):
    change_record(own_bundle, verdict=verdict)
    assert f"verdict is '{verdict}'" in refusal(own_bundle)


def test_a_record_of_another_engine_proves_nothing(own_bundle):
    change_record(own_bundle, engine="tensorrt")
    assert "engine 'onnxruntime' has no parity record" in refusal(own_bundle)


def test_a_changed_stage_voids_the_record_by_name(own_bundle, edit):
    path = own_bundle / "action.onnx"
    path.write_bytes(path.read_bytes().replace(b"vla_runtime", b"vla_runtimf"))
    edit(own_bundle, lambda content: None, rehash=["action.onnx"])
    assert "'action.onnx'" in refusal(own_bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["cameras"].reverse(),
        lambda c: c["cameras"][0].update(mean=[0.4, 0.5, 0.5]),
        lambda c: c["action"].update(std=[0.4] * 6),
    ],
)
def test_swapped_cameras_and_wrong_normalisation_void_the_record(own_bundle, edit, change):
    edit(own_bundle, change)
    assert "policy.yaml" in refusal(own_bundle)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "x", "records": []}', '{"format": "vla-parity/1", "records": [{}]}']
)
def test_a_malformed_parity_file_is_refused_by_name(own_bundle, text):
    (own_bundle / "parity.json").write_text(text)
    with pytest.raises(BundleError, match=r"parity\.json"):
        load_policy(own_bundle)
