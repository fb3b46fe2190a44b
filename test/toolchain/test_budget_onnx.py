"""Operators from ONNX graphs: counted by hand, and the bundle's budget that is made of them."""

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper, save

from vla_runtime.toolchain.budget import BudgetError, find_subject, load_devices, parse_precision
from vla_runtime.toolchain.budget.bundles import graph_stages, read_bundle
from vla_runtime.toolchain.budget.onnx_graph import load_graph, operators_of, static_shapes
from vla_runtime.toolchain.tiny_bundle import STEPS, write_tiny_bundle

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]


def model(nodes, inputs, outputs, weights):
    def infos(tensors):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in tensors.items()]

    constants = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), constants)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def operators(graph):
    return operators_of(graph, static_shapes(graph, "graph"), "graph")


def test_products_by_hand():
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["map"], strides=[4, 4]),  # (2, 6, 2, 2)
        helper.make_node("Reshape", ["map", "flat_shape"], ["flat"]),  # (8, 6)
        helper.make_node("Gemm", ["flat", "w", "b"], ["wide"], transB=1),  # (8, 10)
        helper.make_node("Softmax", ["wide"], ["soft"]),
        helper.make_node("Transpose", ["soft"], ["turned"]),  # (10, 8)
        helper.make_node("MatMul", ["turned", "wide"], ["out"]),  # (10, 10), two activations
    ]
    graph = model(nodes, {"image": [2, 3, 8, 8]}, {"out": [10, 10]},
                  {"kernel": (6, 3, 4, 4), "w": (10, 6), "b": (10,)})  # fmt: skip
    graph.graph.initializer.append(numpy_helper.from_array(np.array([8, 6], np.int64), "flat_shape"))
    conv, gemm, softmax, transpose, product = operators(graph)
    assert (conv.kind, conv.macs, conv.elements("weight")) == ("gemm", 2 * 6 * 4 * 48, 288)
    assert (gemm.kind, gemm.macs, gemm.elements("weight")) == ("gemm", 8 * 10 * 6, 60)
    assert gemm.shape == (1, 10, 8, 6)
    assert softmax.kind == transpose.kind == "other" and softmax.macs == 0
    assert (product.kind, product.macs, product.elements("kv")) == ("attention", 10 * 10 * 8, 80)


def test_a_weight_that_is_dequantised_or_transposed_on_the_way_is_still_a_weight():
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
        helper.make_node("MatMul", ["left", "y"], ["z"]),
    ]
    graph = model(nodes, {"x": [5, 4]}, {"z": [2, 3]}, {"w": (3, 4), "left": (2, 5)})
    first, second = operators(graph)
    assert (first.kind, first.elements("weight")) == ("gemm", 12)
    assert (second.kind, second.elements("weight"), second.elements("activation")) == ("gemm", 10, 15 + 6)


def test_batched_attention_products():
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"])]
    (product,) = operators(model(nodes, {"q": [1, 4, 7, 16], "k": [1, 4, 16, 9]}, {"s": [1, 4, 7, 9]}, {}))
    assert product.macs == 4 * 7 * 9 * 16
    assert product.shape == (4, 9, 7, 16)


def test_block_quantised_products():
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=32, bits=4, block_size=32
    )
    graph = model([node], {"x": [1, 5, 64]}, {"y": [1, 5, 32]}, {"w": (32, 2, 16), "s": (64,)})
    (product,) = operators(graph)
    assert (product.macs, product.elements("weight"), product.shape) == (5 * 64 * 32, 64 * 32, (1, 32, 5, 64))


def test_open_axes_and_broken_files_are_named(tmp_path):
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 4]}, {"y": ["batch", 4]}, {})
    with pytest.raises(BudgetError, match="input 'x' has an axis without a fixed length"):
        static_shapes(graph, "graph")
    (tmp_path / "no.onnx").write_bytes(b"not a model")
    with pytest.raises(BudgetError, match="no.onnx"):
        load_graph(tmp_path / "no.onnx")
    with pytest.raises(BudgetError, match="nowhere.onnx"):
        load_graph(tmp_path / "nowhere.onnx")


def test_the_budget_of_a_bundle_is_that_of_its_graphs(tmp_path):
    bundle = read_bundle(write_tiny_bundle(tmp_path / "tiny", width=32))
    vision, prefill, action = graph_stages(bundle)
    assert [stage.name for stage in (vision, prefill, action)] == ["vision", "prefill", "action"]
    assert (vision.passes, prefill.passes, action.passes) == (1, 1, STEPS)
    patches = 2 * (32 // 8) ** 2
    assert sum(operator.macs for operator in vision.operators) == patches * 32 * 3 * 8 * 8
    weights = sum(operator.elements("weight") for operator in vision.operators)
    assert weights == 32 * 3 * 8 * 8
    subject = find_subject(str(tmp_path / "tiny"), {})
    orin = load_devices()["agx-orin-64"]
    result = subject.budget(orin, parse_precision("fp16"))
    assert result.policy == "tiny-so101"
    assert result.stage("vision").weight_bytes == 2 * weights
    halved = subject.with_steps(STEPS // 2).budget(orin, parse_precision("fp16"))
    assert halved.stage("action").ms == pytest.approx(result.stage("action").ms / 2)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"horizon": 0}, "horizon must be a positive whole number, not 0"),
        ({"dt_s": None}, "dt_s must be a positive number, not None"),
        ({"stages": None}, "'stages' must name the ONNX files"),
        ({"stages": {"vision": {"precision": "fp32"}}}, "stages.vision.file must name an ONNX file"),
        ({"stages": {"lunch": {"file": "a.onnx"}}}, "stage 'lunch' is not known"),
        ({"sampler": {"steps": 0}}, "sampler.steps must be a positive whole number, not 0"),
    ],
)
def test_a_bundle_that_lacks_a_number_is_told_which(tmp_path, change, said):
    root = write_tiny_bundle(tmp_path / "tiny")
    content = yaml.safe_load((root / "policy.yaml").read_text()) | change
    (root / "policy.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(BudgetError, match=said):
        read_bundle(root)


def test_a_folder_without_a_bundle(tmp_path):
    with pytest.raises(BudgetError, match="no policy.yaml in it"):
        read_bundle(tmp_path)


def test_a_saved_stage_is_read_from_its_file(tmp_path):
    graph = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [3, 4]}, {"y": [3, 5]}, {"w": (4, 5)})
    save(graph, str(tmp_path / "a.onnx"))
    loaded = load_graph(tmp_path / "a.onnx")
    assert operators(loaded)[0].macs == 60
