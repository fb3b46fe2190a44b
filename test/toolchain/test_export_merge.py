"""Merging linears at export: the same numbers from fewer products, on floats and on INT4."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.toolchain.export.merge import merge_linears
from vla_runtime.toolchain.quantize.fusion import inspect_fusion
from vla_runtime.toolchain.quantize.linears import find_linears
from vla_runtime.toolchain.quantize.rewrite import GroupPlan, Quantised, rewrite
from vla_runtime.toolchain.quantize.stage import quantise_graph

WIDTH = 128
SIZES = {"q": 256, "k": 64, "v": 64}


def attention_like(biases=(), shared=False, dtype=np.float32):
    """y = q(n) + tile(k(n) * v(n)) over a Relu n of the input; linears named in ``biases`` have one."""
    rng = np.random.default_rng(0)
    nodes, constants = [helper.make_node("Relu", ["x"], ["n"], name="n")], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(value.astype(dtype), name))
        return name

    for name, size in SIZES.items():
        weight = constant(f"{name}.weight", rng.standard_normal((WIDTH, size)) / 11)
        made = f"{name}.product" if name in biases else name
        nodes.append(helper.make_node("MatMul", ["n", weight], [made], name=made))
        if name in biases:
            bias = constant("bias" if shared and name != "q" else f"{name}.bias", rng.standard_normal(size))
            nodes.append(helper.make_node("Add", [made, bias], [name], name=name))
    kinds = dict.fromkeys(SIZES, TensorProto.FLOAT if dtype == np.float32 else TensorProto.FLOAT16)
    outputs = [helper.make_tensor_value_info(name, kinds[name], [1, 5, size]) for name, size in SIZES.items()]
    x = helper.make_tensor_value_info("x", kinds["q"], [1, 5, WIDTH])
    graph = helper.make_graph(nodes, "test", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def answers(model, dtype=np.float32):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((1, 5, WIDTH)).astype(dtype)
    return dict(zip(SIZES, session.run(list(SIZES), {"x": x})))


def products(model):
    return [node for node in model.graph.node if node.op_type == "MatMul"]


@pytest.mark.parametrize("biases", [(), ("q", "k", "v")])
def test_three_products_become_one_with_the_same_answers(biases):
    model = attention_like(biases)
    before = answers(model)
    assert merge_linears(model) == 1
    onnx.checker.check_model(model, full_check=True)
    assert [list(node.output) for node in products(model)] and len(products(model)) == 1
    after = answers(model)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=1e-6)


def test_float16_weights_stay_float16():
    model = attention_like(dtype=np.float16)
    before = answers(model, np.float16)
    assert merge_linears(model) == 1
    after = answers(model, np.float16)
    assert all(after[name].dtype == np.float16 for name in SIZES)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=4e-3)


def test_a_linear_with_a_bias_is_not_put_beside_those_without():
    model = attention_like(biases=("q",))
    before = answers(model)
    assert merge_linears(model) == 1
    assert sorted(helper.make_node(n.op_type, [], []).op_type for n in products(model)) == ["MatMul", "MatMul"]
    after = answers(model)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=1e-6)


def test_one_bias_may_serve_several_linears():
    model = attention_like(biases=("q", "k", "v"), shared=True)
    del model.graph.initializer[-1]  # the second of the two tensors of that name
    before = answers(model)
    assert merge_linears(model) == 1
    after = answers(model)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=1e-6)


def test_what_reads_other_tensors_or_shares_a_weight_is_left_alone():
    model = attention_like()
    for node, source in zip(products(model), ("n", "x", "n")):
        node.input[0] = source
    products(model)[2].input[1] = products(model)[1].input[1]  # k and v share one weight, and v's own is unused
    assert merge_linears(model) == 0
    assert len(products(model)) == 3


def test_int4_linears_are_merged_and_still_fused(tmp_path):
    model = attention_like()
    groups, _ = find_linears(model)
    from vla_runtime.toolchain.quantize.int4 import quantise

    members = [Quantised(linear, *quantise(linear.weight, linear.block)) for linear in groups["n"]]
    quantised = rewrite(model, [GroupPlan("n", None, members)])
    before = answers(quantised)
    assert merge_linears(quantised) == 1
    onnx.checker.check_model(quantised, full_check=True)
    onnx.save(quantised, tmp_path / "merged.onnx")
    fusion = inspect_fusion(tmp_path / "merged.onnx")
    assert (fusion.fused, fusion.unfused) == (1, 0)
    after = answers(quantised)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=1e-6)


def test_rounding_after_merging_gives_the_same_weights():
    plain, merged = attention_like(), attention_like()
    merge_linears(merged)
    inputs = [{"x": np.random.default_rng(2).standard_normal((1, 5, WIDTH)).astype(np.float32)}]
    one, _ = quantise_graph(plain, inputs, method="rtn")
    other, report = quantise_graph(merged, inputs, method="rtn")
    assert len(report.layers) == 1
    before, after = answers(one), answers(other)
    for name in SIZES:
        assert after[name] == pytest.approx(before[name], abs=1e-6)
