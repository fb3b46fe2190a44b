"""fp16 and INT8 for one stage: what engines make of it, and that the bundle says so."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.cli import main
from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.policy import load_policy
from vla_runtime.toolchain.observations import random_observations
from vla_runtime.toolchain.quantize.half import to_half
from vla_runtime.toolchain.quantize.int8 import quantise, quantise_int8
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle
from vla_runtime.toolchain.weights import weight_bytes

WIDTH, HIDDEN, TOKENS = 128, 256, 24


def model(largest: float = 1.0):
    """x -> ReLU -> Gemm with a transposed weight and a bias -> MatMul -> y."""
    rng = np.random.default_rng(0)
    up = rng.standard_normal((HIDDEN, WIDTH)).astype(np.float32) / WIDTH**0.5
    down = rng.standard_normal((HIDDEN, WIDTH)).astype(np.float32) / HIDDEN**0.5
    up[0, 0] = largest
    weights = {"up": up, "bias": rng.standard_normal(HIDDEN).astype(np.float32), "down": down}
    nodes = [
        helper.make_node("Relu", ["x"], ["n"]),
        helper.make_node("Gemm", ["n", "up", "bias"], ["u"], name="up", transB=1),
        helper.make_node("Tanh", ["u"], ["h"]),
        helper.make_node("MatMul", ["h", "down"], ["y"], name="down"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [TOKENS, WIDTH]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "block", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def inputs(count=8, seed=1):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)} for _ in range(count)]


def run(made, given, optimised=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def distance(found, wanted):
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def test_int8_is_near_and_its_products_run_in_integers(tmp_path):
    plain, unseen = model(), inputs(1, seed=9)[0]
    made, report = quantise_int8(plain, inputs())
    onnx.checker.check_model(made)
    assert [each.output for each in report.layers] == ["u", "y"]
    assert 0.0005 < distance(run(made, unseen, tmp_path / "o.onnx"), run(plain, unseen)) < 0.02
    kinds = [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]
    assert sum(kind in ("MatMulIntegerToFloat", "QLinearMatMul", "MatMulInteger") for kind in kinds) == 2
    assert "MatMul" not in kinds and "Gemm" not in kinds


def test_int8_calibrates_the_range_of_each_tensor():
    made, _ = quantise_int8(model(), inputs())
    scales = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer if t.name.endswith(".int8_scale")}
    largest = max(float(np.maximum(each["x"], 0).max()) for each in inputs())
    assert scales["n.int8_scale"] == pytest.approx(largest / 127)
    assert scales["h.int8_scale"] <= 1 / 127  # tanh
    with pytest.raises(UserError, match="no observations to calibrate on"):
        quantise_int8(model(), [])


def test_int8_of_an_output_uses_its_whole_range():
    weight = np.array([[1.0, 0.0], [-2.0, 0.0]], np.float32)
    q, scales = quantise(weight)
    assert q.tolist() == [[64, 0], [-127, 0]] and scales == pytest.approx([2 / 127, 1.0])


def test_fp16_is_half_the_bytes_with_float32_at_both_ends(tmp_path):
    plain, unseen = model(), inputs(1)[0]
    made = to_half(plain)
    onnx.checker.check_model(made)
    found = run(made, unseen)
    assert found.dtype == np.float32 and 0 < distance(found, run(plain, unseen)) < 2e-3
    for name, each in (("plain", plain), ("half", made)):
        onnx.save(each, str(tmp_path / f"{name}.onnx"))
    assert weight_bytes(tmp_path / "half.onnx") == weight_bytes(tmp_path / "plain.onnx") / 2


def test_fp16_refuses_a_weight_that_it_cannot_hold():
    with pytest.raises(UserError, match=r"weight 'up' reaches 1e\+05"):
        to_half(model(largest=1e5))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("precisions") / "tiny", width=256)


def test_each_stage_has_its_own_precision_and_the_first_bundle_stays_the_reference(bundle, tmp_path, capsys):
    half, both = tmp_path / "half", tmp_path / "both"
    assert main(["quantize", str(bundle), "--out", str(half), "--stage", "vision", "--precision", "fp16"]) == 0
    more = ["--precision", "int8", "--random", "--count", "8"]
    assert f"--reference {bundle}" in capsys.readouterr().out
    assert main(["quantize", str(half), "--out", str(both), *more]) == 0
    assert "--reference THE FIRST BUNDLE" in capsys.readouterr().out
    loaded, source = load_bundle(both).policy, load_bundle(bundle).policy
    assert {name: stage.precision for name, stage in loaded.stages.items()} == {
        "vision": "fp16",
        "backbone": "int8",
        "action": "fp32",
    }
    assert loaded.provenance["quantized_from"]["vision.onnx"] == source.files["vision.onnx"]
    assert loaded.provenance["quantization"]["earlier"]["stage"] == "vision"
    policies = [load_policy(path, allow_unproven=True) for path in (bundle, half, both)]
    unseen = random_observations(loaded, 4, seed=7).observations
    wanted, near, far = (np.stack([p.infer(o, seed=1).actions for o in unseen]) for p in policies)
    assert 0 < np.abs(near - wanted).max() < np.abs(far - wanted).max() < 0.1


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_what_is_rounded_already_is_not_rounded_again(bundle, tmp_path, capsys, precision):
    out = tmp_path / "once"
    arguments = ["--precision", precision, "--random", "--count", "4"]
    assert main(["quantize", str(bundle), "--out", str(out), *arguments]) == 0
    assert main(["quantize", str(out), "--out", str(tmp_path / "twice"), *arguments]) == 1
    assert f"is {precision} already" in capsys.readouterr().err
