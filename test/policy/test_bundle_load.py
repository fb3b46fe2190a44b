import onnx
import pytest

from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.errors import BundleError
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


def refusal(bundle) -> str:
    with pytest.raises(BundleError) as caught:
        load_bundle(bundle)
    return str(caught.value)


def set_at(content, path, value):
    *parents, last = path.split(".")
    for key in parents:
        content = content[int(key) if key.isdigit() else key]
    content[int(last) if last.isdigit() else last] = value


def test_tiny_bundle_loads(tiny_bundle):
    policy = load_bundle(tiny_bundle).policy
    assert policy.horizon == 50 and [camera.name for camera in policy.cameras] == ["front", "wrist"]
    assert policy.action.joints[-1] == "gripper" and policy.action.discrete == ["gripper"]


def test_the_same_arguments_give_the_same_bytes(tiny_bundle, tmp_path):
    other = write_tiny_bundle(tmp_path, proven=False)
    for path in other.iterdir():
        assert (tiny_bundle / path.name).read_bytes() == path.read_bytes()


def test_missing_directory_and_missing_policy_are_named(tmp_path):
    assert "nowhere" in refusal(tmp_path / "nowhere")
    assert "policy.yaml" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("format", "vla-bundle/9", ["vla-bundle/9", "vla-bundle/1"]),
        ("dt_s", 0, ["dt_s", "0"]),
        ("dt_s", float("nan"), ["dt_s", "finite"]),
        ("horizon", -3, ["horizon", "-3"]),
        ("horizon", "many", ["horizon", "many"]),
        ("cameras.0.width", 0, ["cameras.0.width"]),
        ("cameras.0.resize", "squash", ["cameras.0.resize", "squash"]),
        ("cameras.0.focal_length", 3, ["cameras.0.focal_length", "unknown"]),
        ("cameras.1.name", "front", ["cameras", "front"]),
        ("cameras.1.width", 64, ["size", "(32, 64)"]),
        ("state.std", [0.5] * 5, ["std", "5", "6"]),
        ("state.std.2", 0.0, ["state.std.2"]),
        ("action.joints.1", "shoulder_pan", ["twice", "shoulder_pan"]),
        ("action.discrete", ["claw"], ["claw"]),
        ("action.space", "poses", ["action.space", "poses"]),
        ("limits.gripper.lower", 9.0, ["limits.gripper", "9.0"]),
        ("limits", {"gripper": {"lower": 0, "upper": 1, "velocity": 1, "acceleration": 1}}, ["limits", "elbow_flex"]),
        ("instruction.template", "pick", ["template"]),
        ("rtc.max_delay_steps", 50, ["max_delay_steps", "50"]),
        ("sampler.steps", 0, ["sampler.steps"]),
        ("stages.vision.file", "../vision.onnx", ["../vision.onnx", "leaves"]),
        ("stages.vision.file", "/etc/passwd", ["/etc/passwd", "leaves"]),
        ("stages.vision.file", "C:\\x.onnx", ["leaves"]),
        ("stages.vision.file", "other.onnx", ["stages.vision.file", "other.onnx", "SHA-256"]),
        ("instruction.tokenizer", "sub/../../t.json", ["leaves"]),
        ("files", {"a.onnx": "xyz"}, ["files.a.onnx"]),
    ],
)
def test_a_bad_field_is_named_with_its_value(own_bundle, edit, path, value, words):
    edit(own_bundle, lambda content: set_at(content, path, value))
    text = refusal(own_bundle)
    assert all(word in text for word in words), text


def test_a_missing_field_is_named(own_bundle, edit):
    edit(own_bundle, lambda content: content.pop("dt_s"))
    assert "dt_s: missing" in refusal(own_bundle)


def test_not_yaml_and_not_a_mapping(own_bundle):
    (own_bundle / "policy.yaml").write_text("a: [")
    assert "not readable as YAML" in refusal(own_bundle)
    (own_bundle / "policy.yaml").write_text("- 1")
    assert "mapping" in refusal(own_bundle)
    (own_bundle / "policy.yaml").write_text("!!python/object/apply:os.system ['true']")
    assert "not readable as YAML" in refusal(own_bundle)


def test_one_changed_byte_late_in_a_file_is_found(own_bundle, edit):
    path = own_bundle / "vision.onnx"
    big = path.read_bytes() + b"\0" * 100_000
    path.write_bytes(big)
    edit(own_bundle, lambda content: None, rehash=["vision.onnx"])
    changed = bytearray(big)
    changed[90_000] ^= 1
    path.write_bytes(changed)
    text = refusal(own_bundle)
    assert "vision.onnx" in text and "SHA-256" in text


def test_missing_file_is_named(own_bundle):
    (own_bundle / "backbone.onnx").unlink()
    assert "'backbone.onnx' is missing" in refusal(own_bundle)


def test_a_link_that_leads_out_is_refused(own_bundle, tmp_path):
    (own_bundle / "vision.onnx").rename(tmp_path / "outside.onnx")
    (own_bundle / "vision.onnx").symlink_to(tmp_path / "outside.onnx")
    assert "leads out" in refusal(own_bundle)


def test_a_pickle_is_never_accepted(own_bundle, edit):
    (own_bundle / "weights.pt").write_bytes(b"\x80\x04N.")
    edit(own_bundle, lambda content: content["files"].update({"weights.pt": "0" * 64}))
    assert "weights.pt" in refusal(own_bundle)


def test_horizon_that_contradicts_the_graph_names_both_numbers(tmp_path, edit):
    bundle = write_tiny_bundle(tmp_path, horizon=10, proven=False)

    def lie(content):
        content["horizon"] = 50
        for part in ("inputs", "outputs"):
            for name, tensor in content["stages"]["action"][part].items():
                if name in ("x", "v", "time"):
                    tensor["shape"][1] = 50

    edit(bundle, lie)
    text = refusal(bundle)
    assert "10" in text and "50" in text and "horizon" in text and "action.onnx" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(horizon=40), ["horizon is 40", "50", "action"]),
        (lambda c: c["cameras"].pop(), ["number of cameras is 1", "2", "vision"]),
        (lambda c: [camera.update(height=64) for camera in c["cameras"]], ["height is 64", "32"]),
        (lambda c: c["instruction"].update(max_tokens=8), ["max_tokens is 8", "16", "backbone"]),
        (
            lambda c: c["instruction"].update(template="{state} {instruction}", state={"values": 5, "bins": 256}),
            ["instruction.state.values is 5", "6 joints"],
        ),
        (lambda c: c["action"].update(pad_to=32), ["action's width is 32", "6"]),
        (lambda c: c["state"].update(pad_to=32), ["state's width is 32", "6"]),
        (lambda c: c["stages"]["action"]["inputs"]["context"].update(shape=[1, 1, 16]), ["context", "[1, 1, 16]"]),
        (lambda c: c["stages"]["backbone"]["inputs"].update(depth={"shape": [1], "dtype": "float32"}), ["'depth'"]),
        (lambda c: c["stages"]["vision"]["inputs"]["images"].update(dtype="float16"), ["images", "float16", "float32"]),
        (lambda c: c["stages"]["backbone"]["outputs"].pop("anchor"), ["anchor"]),
    ],
)
def test_contradictions_between_fields_and_graphs(own_bundle, edit, change, words):
    edit(own_bundle, change)
    text = refusal(own_bundle)
    assert all(word in text for word in words), text


def test_weights_outside_the_bundle_are_refused(own_bundle, edit, tmp_path):
    model = onnx.load(own_bundle / "vision.onnx")
    tensor = model.graph.initializer[0]
    raw = tensor.raw_data
    (tmp_path / "stolen.data").write_bytes(raw)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../stolen.data"
    (own_bundle / "vision.onnx").write_bytes(model.SerializeToString())
    edit(own_bundle, lambda content: None, rehash=["vision.onnx"])
    assert "../stolen.data" in refusal(own_bundle)


def test_a_file_that_is_no_onnx_is_refused(own_bundle, edit):
    (own_bundle / "vision.onnx").write_bytes(b"not a model at all")
    edit(own_bundle, lambda content: None, rehash=["vision.onnx"])
    assert "vision.onnx" in refusal(own_bundle)
