import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.autoawq import dequantise_linear, group_size, requantise, unpack
from vla_runtime.toolchain.quantize.int4 import dequantise

ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(values: np.ndarray) -> np.ndarray:
    """The inverse, written from the format's description."""
    words = np.zeros((values.shape[0], values.shape[1] // 8), np.uint32)
    for column in range(words.shape[1]):
        for nibble, place in enumerate(ORDER):
            words[:, column] |= values[:, 8 * column + place].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view(np.int32)


def checkpoint(seed: int, zero: int | None, k: int = 256, n: int = 16, group: int = 128):
    rng = np.random.default_rng(seed)
    q = rng.integers(0, 16, (k, n))
    z = np.full((k // group, n), zero) if zero is not None else rng.integers(5, 11, (k // group, n))
    s = rng.uniform(0.01, 0.1, (k // group, n)).astype(np.float16)
    weight = (q - np.repeat(z, group, 0)) * np.repeat(s.astype(np.float32), group, 0)
    return {"l.qweight": pack(q), "l.qzeros": pack(z), "l.scales": s}, weight.astype(np.float32)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999), st.integers(1, 5), st.integers(1, 3))
def test_nibbles_come_back_in_the_order_of_the_outputs(seed, rows, columns):
    values = np.random.default_rng(seed).integers(0, 16, (rows, 8 * columns))
    assert np.array_equal(unpack(pack(values)), values)


@pytest.mark.parametrize("zero", [8, None])
def test_weights_come_back(zero):
    tensors, weight = checkpoint(0, zero)
    assert dequantise_linear(tensors, "l", 128) == pytest.approx(weight, abs=1e-6)


def test_symmetric_ones_keep_their_values_exactly():
    tensors, weight = checkpoint(1, 8)
    made = requantise(tensors, "l", 128)
    assert made.relative_cost == 0.0 and dequantise(made.q, made.scales) == pytest.approx(weight, abs=1e-6)


def test_asymmetric_ones_are_rounded_again_and_the_cost_is_said():
    tensors, weight = checkpoint(2, None)
    made = requantise(tensors, "l", 128)
    cost = np.linalg.norm(dequantise(made.q, made.scales) - weight) / np.linalg.norm(weight)
    assert made.relative_cost == pytest.approx(cost, rel=1e-5) and 0.01 < cost < 0.15


def test_what_does_not_fit_is_named():
    tensors, _ = checkpoint(3, 8)
    with pytest.raises(UserError, match=r"l\.qzeros"):
        dequantise_linear({**tensors, "l.qzeros": tensors["l.qzeros"][:1]}, "l", 128)
    del tensors["l.scales"]
    with pytest.raises(UserError, match=r"l\.scales"):
        requantise(tensors, "l", 128)
    good = {"quant_method": "awq", "bits": 4, "version": "GEMM", "group_size": 64}
    assert group_size({"quantization_config": good}) == 64
    with pytest.raises(UserError, match="'bits': 8"):
        group_size({"quantization_config": {**good, "bits": 8}})
