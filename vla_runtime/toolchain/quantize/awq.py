"""Activation-aware weight quantisation (Lin et al. 2023, arXiv 2306.00978), for symmetric INT4.

Inputs that carry large activations get finer steps: rows of the weight are multiplied by s and the activations divided
by it, with s chosen on a grid so that the layer's output error is least. Then each group's range is clipped where that
lowers the error further. The error is measured through the second moments of the inputs, H = E[x x^T], which hold all
calibration tokens in (K, K): |x (W - W')|^2 summed over tokens is tr(E^T H E).
"""

from dataclasses import dataclass

import numpy as np

from vla_runtime.toolchain.quantize.int4 import blocks_of, largest, rounded

GRID = 20
SHRINK_STEPS, LEAST_REACH = 10, 0.5
SMALLEST = 1e-4


@dataclass(frozen=True)
class InputMoments:
    """Of the tensor that linears read: E[x x^T] (K, K), E[|x|] (K,), over ``tokens`` tokens; the largest |x|."""

    second: np.ndarray
    mean_abs: np.ndarray
    tokens: int
    largest: float = 0.0


@dataclass(frozen=True)
class ScaleChoice:
    """``scale`` (K,), multiplied into weight rows; errors relative to the unquantised output, before and after."""

    scale: np.ndarray
    rtn_error: float
    awq_error: float


def output_error(weight: np.ndarray, replacement: np.ndarray, second: np.ndarray) -> float:
    """Return E|x (W - W')|^2 / E|x W|^2."""
    return _power(weight - replacement, second) / max(_power(weight, second), 1e-30)


def search_scale(weights: list[np.ndarray], blocks: list[int], moments: InputMoments) -> ScaleChoice:
    """Choose the scale of one group of linears that read the same tensor.

    Candidates: s = a^r and s = a^r / w^(1-r), r in {0, 1/20, ..., 19/20}, with a = E|x| and w the mean magnitude of the
    weight rows relative to their group; normalised so that the largest times the smallest is 1. r = 0 of the first
    family is s = 1, so the choice is never worse than rounding to nearest.
    """
    activation = np.maximum(moments.mean_abs, SMALLEST * max(float(moments.mean_abs.max()), SMALLEST))
    magnitude = _row_magnitude(weights, blocks)
    base = [_power(weight, moments.second) for weight in weights]
    best_scale, best_error, plain_error = np.ones_like(activation), np.inf, np.inf
    for duo in (False, True):
        for step in range(GRID):
            ratio = step / GRID
            scale = activation**ratio
            if duo:
                scale = scale / magnitude ** (1 - ratio)
            scale = np.maximum(scale, SMALLEST)
            scale = scale / np.sqrt(scale.max() * scale.min())
            error = _group_error(weights, blocks, scale, moments.second, base)
            if not duo and step == 0:
                plain_error = error
            if error < best_error:
                best_scale, best_error = scale, error
    return ScaleChoice(best_scale.astype(np.float32), plain_error, best_error)


def search_reach(weight: np.ndarray, block: int, second: np.ndarray) -> np.ndarray:
    """Return (K/block, N): how far each group's range should reach, between half and all of its largest magnitude.

    ``second`` must belong to the inputs as this weight sees them (divided by the scale). Each group is judged by its
    own share of the output error, e^T H_gg e.
    """
    whole = largest(weight, block)
    groups = blocks_of(weight, block)
    diagonal = [second[start : start + block, start : start + block] for start in range(0, weight.shape[0], block)]
    best, least = whole.copy(), np.full(whole.shape, np.inf)
    for step in range(SHRINK_STEPS + 1):
        reach = whole * (1 - (1 - LEAST_REACH) * step / SHRINK_STEPS)
        gap = groups - blocks_of(rounded(weight, block, reach), block)
        error = np.stack([np.einsum("kn,kn->n", part, share @ part) for part, share in zip(gap, diagonal)])
        better = error < least
        best, least = np.where(better, reach, best), np.where(better, error, least)
    return best


def scaled_moments(second: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Second moments of x / scale."""
    return second / np.outer(scale, scale)


def _group_error(weights, blocks, scale, second, base) -> float:
    total = 0.0
    for weight, block, power in zip(weights, blocks, base):
        back = rounded(weight * scale[:, None], block) / scale[:, None]
        total += _power(weight - back, second) / max(power, 1e-30)
    return total / len(weights)


def _power(matrix: np.ndarray, second: np.ndarray) -> float:
    return float(np.einsum("kn,kn->", matrix, second @ matrix))


def _row_magnitude(weights: list[np.ndarray], blocks: list[int]) -> np.ndarray:
    """(K,) mean magnitude of the rows over all outputs, each relative to the largest of its group."""
    shares = []
    for weight, block in zip(weights, blocks):
        peak = np.maximum(largest(weight, block), 1e-12)
        relative = np.abs(blocks_of(weight, block)) / peak[:, None, :]
        shares.append(relative.reshape(weight.shape).mean(axis=1))
    return np.maximum(np.mean(shares, axis=0), SMALLEST)
