"""NVIDIA's ModelOpt as an independent oracle of INT4: `INT4_AWQ_CFG` on one linear layer (`make test-peers`)."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the peers' environment: make test-peers")
pytest.importorskip("modelopt", reason="ModelOpt is not installed (make test-peers)")
mtq = pytest.importorskip("modelopt.torch.quantization", reason="ModelOpt does not import here")

from vla_runtime.toolchain.quantize.awq import InputMoments, output_error, search_scale  # noqa: E402
from vla_runtime.toolchain.quantize.int4 import rounded  # noqa: E402

K, N, TOKENS, BLOCK = 512, 256, 2048, 128


def problem(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (TOKENS, K) in which a few channels are thirty times the others, and a weight (K, N)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(TOKENS, K)).astype(np.float32)
    x[:, rng.permutation(K)[:8]] *= 30
    return x, rng.normal(0, 0.02, (K, N)).astype(np.float32)


def modelopts(x: np.ndarray, weight: np.ndarray, algorithm) -> np.ndarray:
    """What ModelOpt's INT4 makes of x @ weight, calibrated on x."""
    linear = torch.nn.Linear(K, N, bias=False)
    model = torch.nn.Sequential(linear).eval()
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
    config = copy.deepcopy(mtq.INT4_AWQ_CFG)
    if algorithm is not None:
        config["algorithm"] = algorithm
    inputs = torch.from_numpy(x)
    with torch.no_grad():
        made = mtq.quantize(model, config, lambda each: each(inputs))
        return made(inputs).numpy()


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.square(found - wanted, dtype=np.float64).sum() / np.square(wanted, dtype=np.float64).sum())


def test_rounding_to_nearest_is_modelopts():
    x, weight = problem(0)
    theirs = modelopts(x, weight, "max")
    assert relative(x @ rounded(weight, BLOCK), theirs) < 1e-9
    assert relative(theirs, x @ weight) > 1e-3  # it did round


@pytest.mark.parametrize("seed", range(3))
def test_our_scale_search_is_at_least_as_good_as_modelopts(seed):
    x, weight = problem(seed)
    moments = InputMoments((x.T @ x / TOKENS).astype(np.float32), np.abs(x).mean(0).astype(np.float64), TOKENS)
    scale = search_scale([weight], [BLOCK], moments).scale[:, None]
    ours = output_error(weight, rounded(weight * scale, BLOCK) / scale, moments.second)
    theirs = relative(modelopts(x, weight, None), x @ weight)
    plain = output_error(weight, rounded(weight, BLOCK), moments.second)
    assert ours < 1.02 * theirs
    assert max(ours, theirs) < 0.7 * plain  # both found the loud channels
