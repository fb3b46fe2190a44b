"""Committed prefixes of models that were not trained on them: guidance through the flow loop, against rtc.py alone."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.policy import rtc
from vla_runtime.policy.policy import Observation, Prefix, load_policy

HORIZON, WIDTH, STEPS = 50, 6, 8


def linear_stage(path, matrix, bias, source, output):
    """output = source @ matrix + bias, with x and time as inputs too."""
    names = ["x", "time"] + ([source] if source != "x" else [])
    shapes = {"x": [1, HORIZON, WIDTH], "time": [1, HORIZON], source: [1, HORIZON, WIDTH]}
    nodes = [helper.make_node("MatMul", [source, "m"], ["p"]), helper.make_node("Add", ["p", "b"], [output])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, HORIZON, WIDTH])],
        [numpy_helper.from_array(matrix, "m"), numpy_helper.from_array(bias, "b")],
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    return {
        "file": path.name,
        "inputs": {name: {"shape": shapes[name], "dtype": "float32"} for name in names},
        "outputs": {output: {"shape": [1, HORIZON, WIDTH], "dtype": "float32"}},
    }


@pytest.fixture(params=[False, True], ids=["identity", "exact"])
def guided(own_bundle, edit, request):
    """(policy, v(x) of its linear action stage, whether it has the exact vector-Jacobian product)."""
    rng = np.random.default_rng(0)
    matrix, bias = (0.3 * rng.standard_normal(shape).astype(np.float32) for shape in ((WIDTH, WIDTH), (WIDTH,)))
    action = linear_stage(own_bundle / "action.onnx", matrix, bias, "x", "v")
    vjp = linear_stage(own_bundle / "action_vjp.onnx", np.ascontiguousarray(matrix.T), 0 * bias, "cotangent", "vjp")

    def change(content):
        content["rtc"] = {"prefix_trained": False, "max_guidance_weight": 5.0}
        content["stages"]["action"] = action
        if request.param:
            content["stages"]["action_vjp"] = vjp
            content["files"]["action_vjp.onnx"] = "0" * 64

    edit(own_bundle, change)
    edit(own_bundle, lambda c: None, rehash=["action.onnx"] + (["action_vjp.onnx"] if request.param else []))
    return load_policy(own_bundle, allow_unproven=True), matrix, bias, request.param


def observation():
    images = {name: np.zeros((32, 32, 3), np.uint8) for name in ("front", "wrist")}
    return Observation(0.0, images, np.zeros(WIDTH), "pick up the red cube")


def test_the_loop_is_that_of_rtc(guided):
    policy, matrix, bias, exact = guided
    prefix = np.random.default_rng(1).uniform(-0.2, 0.2, (20, WIDTH))
    got = policy.infer(observation(), Prefix(prefix), 4, seed=3).actions
    noise = policy.noise(3)[0]
    target = rtc.pad_target((prefix / 0.5).astype(np.float32), HORIZON)
    weights = rtc.soft_mask(HORIZON, 4, 20)
    if exact:
        want = rtc.sample_guided(
            lambda x, tau: (x @ matrix + bias, lambda g: g @ matrix.T), noise, STEPS, target, weights, 5.0
        )
    else:
        want = rtc.sample_guided_identity(lambda x, tau: x @ matrix + bias, noise, STEPS, target, weights, 5.0)
    assert got[4:] == pytest.approx(want[4:] * 0.5, abs=1e-4)
    assert np.array_equal(got[:4], prefix[:4])


def test_guidance_pulls_towards_what_was_planned_and_fades_out(guided):
    policy, *_ = guided
    prefix = np.full((20, WIDTH), 0.2)
    plain = policy.infer(observation(), seed=3).actions
    pulled = policy.infer(observation(), Prefix(prefix), 6, seed=3).actions
    gap = np.abs(plain - 0.2).mean(axis=1), np.abs(pulled - 0.2).mean(axis=1)
    assert gap[1][6:12].mean() < 0.5 * gap[0][6:12].mean()
    assert np.allclose(pulled[20:], plain[20:], atol=1e-5)
