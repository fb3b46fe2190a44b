import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.fusion import inspect_fusion
from vla_runtime.toolchain.quantize.int4 import pack, quantise
from vla_runtime.toolchain.quantize.linears import find_linears
from vla_runtime.toolchain.quantize.rewrite import GroupPlan, Quantised, rewrite
from vla_runtime.toolchain.quantize.stage import quantise_graph

WIDTH, HIDDEN, TOKENS = 128, 256, 24


def block_model(seed: int = 0, opset: int = 21, norm: str = "LayerNormalization", outliers: float = 30.0):
    """in -> projector -> norm -> (up, gate as a Gemm's transposed weight) -> product -> down -> out."""
    rng = np.random.default_rng(seed)

    def normal(*shape, scale=1.0):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    gain = np.ones(WIDTH, np.float32)
    gain[rng.choice(WIDTH, 4, replace=False)] = outliers
    weights = {
        "projector": normal(WIDTH, WIDTH, scale=WIDTH**-0.5),
        "gain": gain,
        "up.weight": normal(WIDTH, HIDDEN, scale=WIDTH**-0.5),
        "gate.weight": normal(HIDDEN, WIDTH, scale=WIDTH**-0.5),
        "gate.bias": normal(HIDDEN),
        "down.weight": normal(HIDDEN, WIDTH, scale=HIDDEN**-0.5),
    }
    if norm == "LayerNormalization":
        weights["shift"] = normal(WIDTH, scale=0.1)
        normed = [helper.make_node(norm, ["p", "gain", "shift"], ["n"], name="norm")]
    else:
        normed = [helper.make_node("Mul", ["p", "gain"], ["n"], name="norm")]
    nodes = [
        helper.make_node("MatMul", ["x", "projector"], ["p"], name="project"),
        *normed,
        helper.make_node("MatMul", ["n", "up.weight"], ["u"], name="up"),
        helper.make_node("Gemm", ["n", "gate.weight", "gate.bias"], ["g"], name="gate", transB=1),
        helper.make_node("Sigmoid", ["g"], ["sg"]),
        helper.make_node("Mul", ["u", "sg"], ["h"]),
        helper.make_node("MatMul", ["h", "down.weight"], ["y"], name="down"),
    ]
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [TOKENS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [TOKENS, WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def inputs(count: int = 8, seed: int = 1):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)} for _ in range(count)]


def run(model, given, optimise: bool = True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def relative(model, made) -> float:
    unseen = inputs(4, seed=99)
    errors = [np.linalg.norm(run(model, x) - run(made, x)) / np.linalg.norm(run(model, x)) for x in unseen]
    return float(np.mean(errors))


def test_linears_are_found_and_the_projector_is_left():
    groups, skipped = find_linears(block_model())
    assert {source: [each.output for each in group] for source, group in groups.items()} == {
        "n": ["u", "g"],
        "h": ["y"],
    }
    assert [(each.output, each.why) for each in skipped] == [("p", "reads an input of the stage (projector)")]
    assert groups["n"][1].weight.shape == (WIDTH, HIDDEN) and groups["n"][1].transposed
    _, skipped = find_linears(block_model(), exclude=["down"])
    assert ("y", "excluded by name") in [(each.output, each.why) for each in skipped]


@pytest.mark.parametrize("norm", ["LayerNormalization", "Mul"])
@pytest.mark.parametrize("method", ["awq", "rtn"])
def test_the_quantised_graph_is_valid_fused_and_close(tmp_path, norm, method):
    model = block_model(norm=norm)
    made, report = quantise_graph(model, inputs(), method=method)
    onnx.checker.check_model(made, full_check=True)
    path = tmp_path / "made.onnx"
    onnx.save(made, str(path))
    fusion = inspect_fusion(path)
    assert (fusion.fused, fusion.unfused) == (3, 0)
    assert len(report.layers) == 3
    assert relative(model, made) < (0.12 if method == "awq" else 0.3)
    packed = [t for t in made.graph.initializer if t.data_type == TensorProto.INT4]
    assert sorted(tuple(t.dims) for t in packed) == [(WIDTH, HIDDEN)] * 2 + [(HIDDEN, WIDTH)]
    assert path.stat().st_size < 0.4 * len(model.SerializeToString())


@pytest.mark.parametrize("seed", range(3))
def test_awq_beats_rounding_on_a_model_with_planted_outliers(seed):
    model = block_model(seed)
    rtn = quantise_graph(model, inputs(), method="rtn")[0]
    awq = quantise_graph(model, inputs(), feedback=False)[0]
    whole = quantise_graph(model, inputs(32))[0]
    assert relative(model, awq) <= 0.7 * relative(model, rtn)
    assert relative(model, whole) <= relative(model, awq)


@pytest.mark.parametrize("norm", ["LayerNormalization", "Mul"])
def test_the_scale_is_folded_into_the_norm_where_only_these_linears_read_it(norm):
    made, _ = quantise_graph(block_model(norm=norm), inputs())
    added = [node.name for node in made.graph.node if node.name.endswith(".awq")]
    assert added == ["h.awq"]  # the product has no weights to fold into


def test_a_tensor_that_others_read_is_not_changed():
    model = block_model()
    model.graph.output.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, [TOKENS, WIDTH]))
    made, _ = quantise_graph(model, inputs())
    given = inputs(1, seed=3)[0]
    options = onnxruntime.SessionOptions()
    results = [
        onnxruntime.InferenceSession(each.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
            ["n"], given
        )
        for each in (model, made)
    ]
    assert np.allclose(results[0][0], results[1][0], atol=1e-5)


def test_scaling_alone_changes_nothing():
    """With weights that INT4 holds exactly, any scale of powers of two gives the same function."""
    model = block_model(outliers=1.0)
    groups, _ = find_linears(model)
    rng = np.random.default_rng(0)
    plans = []
    for source, linears in groups.items():
        scale = (2.0 ** rng.integers(-2, 3, linears[0].weight.shape[0])).astype(np.float32)
        members = []
        for linear in linears:
            steps = rng.integers(-7, 8, linear.weight.shape).astype(np.float32) / 16
            steps[0::128] = 7 / 16  # the largest of each group, so that a step is 1/16
            exact = steps / scale[:, None]
            tensor = next(t for t in model.graph.initializer if t.name == linear.initializer)
            tensor.CopyFrom(
                numpy_helper.from_array(np.ascontiguousarray(exact.T if linear.transposed else exact), tensor.name)
            )
            members.append(Quantised(linear, *quantise(steps, linear.block)))
        plans.append(GroupPlan(source, scale, members))
    made = rewrite(model, plans)
    for given in inputs(3, seed=5):
        assert np.allclose(run(made, given, optimise=False), run(model, given), rtol=1e-3, atol=1e-4)


def test_an_older_opset_is_raised():
    model = block_model(opset=18)
    made, _ = quantise_graph(model, inputs(), method="rtn")
    assert made.opset_import[0].version >= 21
    onnx.checker.check_model(made, full_check=True)


def test_the_other_layout_is_not_fused_and_the_inspection_says_so(tmp_path):
    """Stored [N, K] with a Transpose: what must not be emitted (100 times slower)."""
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    q, scales = quantise(weight, 128)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1, block_size=128),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 256])],
        [
            helper.make_tensor("q", TensorProto.INT4, q.shape, pack(np.ascontiguousarray(q.T)), raw=True),
            numpy_helper.from_array(np.ascontiguousarray(scales.T), "s"),
        ],
    )
    path = tmp_path / "bad.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    assert inspect_fusion(path).fused == 0


def test_no_layer_no_observations_and_no_such_method_are_users_mistakes():
    with pytest.raises(UserError, match="no layer can become INT4.*excluded by name"):
        quantise_graph(block_model(), inputs(), exclude=["*"])
    with pytest.raises(UserError, match="no observations"):
        quantise_graph(block_model(), [])
    with pytest.raises(UserError, match="'magic'"):
        quantise_graph(block_model(), inputs(), method="magic")
