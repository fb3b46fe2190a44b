import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.toolchain.quantize.awq import (
    InputMoments,
    output_error,
    scaled_moments,
    search_reach,
    search_scale,
)
from vla_runtime.toolchain.quantize.compensate import compensated
from vla_runtime.toolchain.quantize.int4 import best_block, dequantise, pack, quantise, rounded


def moments(x: np.ndarray) -> InputMoments:
    return InputMoments((x.T @ x / len(x)).astype(np.float32), np.abs(x).mean(axis=0), len(x))


def planted(seed: int, k: int = 256, n: int = 192, tokens: int = 512, outliers: int = 6):
    """Inputs of which a few channels are 30 times larger, as in transformers."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, k)).astype(np.float32)
    x[:, rng.choice(k, outliers, replace=False)] *= 30
    return x, rng.standard_normal((k, n)).astype(np.float32) / np.sqrt(k)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 7), st.sampled_from([16, 32]), st.integers(0, 999), st.floats(1e-3, 1e3))
def test_rounding_errs_by_at_most_half_a_step_and_uses_the_signed_range(groups, n, block, seed, size):
    weight = (size * np.random.default_rng(seed).standard_normal((groups * block, n))).astype(np.float32)
    q, scales = quantise(weight, block)
    assert q.min() >= -8 and q.max() <= 7 and scales.shape == (groups, n)
    steps = np.repeat(scales, block, axis=0)
    assert (np.abs(dequantise(q, scales) - weight) <= 0.5001 * steps + 1e-9).all()


def test_zero_groups_stay_zero():
    assert not rounded(np.zeros((32, 3), np.float32), 16).any()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 999))
def test_packing_is_onnxs_own(k, n, seed):
    q = np.random.default_rng(seed).integers(-8, 8, (k, n)).astype(np.int8)
    tensor = helper.make_tensor("q", TensorProto.INT4, q.shape, pack(q), raw=True)
    assert np.array_equal(numpy_helper.to_array(tensor).astype(np.int8), q)


@pytest.mark.parametrize(("inputs", "block"), [(256, 128), (960, 64), (96, 32), (48, 16), (100, None)])
def test_block_that_divides(inputs, block):
    assert best_block(inputs, 128) == block


@pytest.mark.parametrize("seed", range(4))
def test_awq_beats_rounding_on_planted_outliers(seed):
    x, weight = planted(seed)
    seen = moments(x)
    choice = search_scale([weight], [128], seen)
    scaled = weight * choice.scale[:, None]
    reach = search_reach(scaled, 128, scaled_moments(seen.second, choice.scale))
    found = rounded(scaled, 128, reach) / choice.scale[:, None]
    rtn, awq = (np.linalg.norm(x @ (weight - each)) for each in (rounded(weight, 128), found))
    assert awq <= 0.7 * rtn, f"{awq / rtn:.2f}"
    assert choice.awq_error <= choice.rtn_error


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 999), st.booleans())
def test_awq_is_never_worse_than_rounding(seed, outliers):
    x, weight = planted(seed, k=128, n=32, tokens=64, outliers=5 if outliers else 0)
    seen = moments(x)
    scale = search_scale([weight], [128], seen).scale
    error = output_error(weight, rounded(weight * scale[:, None], 128) / scale[:, None], seen.second)
    assert error <= output_error(weight, rounded(weight, 128), seen.second) * (1 + 1e-5)


def test_moments_measure_the_output_error_of_all_tokens():
    x, weight = planted(3, k=64, n=16)
    other = rounded(weight, 32)
    want = np.sum((x @ (weight - other)) ** 2) / np.sum((x @ weight) ** 2)
    assert output_error(weight, other, moments(x).second) == pytest.approx(want, rel=1e-3)
    scale = np.linspace(0.5, 2, 64).astype(np.float32)
    want = moments(x / scale).second
    assert scaled_moments(moments(x).second, scale) == pytest.approx(want, rel=1e-3, abs=1e-4)


def test_scale_of_a_shared_input_serves_all_its_linears():
    x, first = planted(5)
    second = np.random.default_rng(9).standard_normal((256, 64)).astype(np.float32)
    choice = search_scale([first, second], [128, 128], moments(x))
    assert choice.scale.shape == (256,) and choice.awq_error < choice.rtn_error
    assert choice.scale.max() * choice.scale.min() == pytest.approx(1, rel=1e-4)


def test_clipping_lets_go_of_a_lone_large_weight_that_sees_no_signal():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((128, 8)).astype(np.float32)
    weight[5] = 8.0
    x = rng.standard_normal((256, 128)).astype(np.float32)
    x[:, 5] = 0
    second = moments(x).second
    reach = search_reach(weight, 128, second)
    assert (reach < 8).all()
    assert output_error(weight, rounded(weight, 128, reach), second) < output_error(
        weight, rounded(weight, 128), second
    )


def test_int4_of_onnx_means_what_ours_means():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((32, 6)).astype(np.float32)
    q, scales = quantise(weight, 16)
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=16)],
        "g",
        [],
        [helper.make_tensor_value_info("w", TensorProto.FLOAT, [32, 6])],
        [helper.make_tensor("q", TensorProto.INT4, q.shape, pack(q), raw=True), numpy_helper.from_array(scales, "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {})[0], dequantise(q, scales))


def correlated(seed: int, k: int = 128, rank: int = 24, tokens: int = 400):
    """Inputs that live mostly in a few directions, as those of a trained network do."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, rank)) @ rng.standard_normal((rank, k)) + 0.1 * rng.standard_normal((tokens, k))
    return x.astype(np.float32), rng.standard_normal((k, 48)).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_rows_make_up_for_each_others_errors_on_tokens_that_were_not_seen(seed):
    x, weight = correlated(seed)
    seen, unseen = x[:300], x[300:]
    q, scales = quantise(weight, 64)
    better = compensated(weight, scales, moments(seen).second)
    plain, made = (np.linalg.norm(unseen @ (weight - dequantise(each, scales))) for each in (q, better))
    assert better.min() >= -8 and better.max() <= 7
    assert made <= 0.6 * plain


def test_without_correlation_there_is_nothing_to_make_up_for():
    weight = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    q, scales = quantise(weight, 16)
    assert np.array_equal(compensated(weight, scales, np.eye(32, dtype=np.float32)), q)


def test_compensation_survives_dead_inputs():
    x, weight = correlated(1)
    x[:, 40:60] = 0
    _, scales = quantise(weight, 64)
    assert np.isfinite(dequantise(compensated(weight, scales, moments(x).second), scales)).all()
