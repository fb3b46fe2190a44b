"""Rounds a weight row by row, and lets the rows still to come make up for each row's error.

This is the rounding of Frantar et al. 2022 (GPTQ, arXiv 2210.17323) with group scales fixed beforehand, here by the
activation-aware search. Rows go in falling order of their inputs' power, so that what matters most is rounded while
most rows can still make up for it.
"""

import numpy as np

from vla_runtime.toolchain.quantize.int4 import HIGHEST, LOWEST

DAMPING = 0.01  # of the mean diagonal: keeps the inverse of the moments well conditioned
BATCH = 64


def compensated(weight: np.ndarray, scales: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return q (K, N) int8 for ``weight`` (K, N), group scales (K/block, N) and second moments (K, K) of its inputs."""
    k = weight.shape[0]
    block = k // scales.shape[0]
    steps = np.repeat(scales.astype(np.float64), block, axis=0)
    order = np.argsort(-np.diag(second), kind="stable")
    moments = second[np.ix_(order, order)].astype(np.float64)
    moments[np.diag_indices(k)] += DAMPING * float(np.mean(np.diag(moments))) + 1e-12
    # Upper Cholesky factor of the inverse: row i tells how rows after i make up for an error in row i.
    factor = np.linalg.cholesky(np.linalg.inv(moments)).T
    rows, steps = weight[order].astype(np.float64), steps[order]
    q = np.zeros((k, weight.shape[1]), np.int8)
    for start in range(0, k, BATCH):
        end = min(start + BATCH, k)
        errors = np.zeros((end - start, weight.shape[1]))
        for i in range(start, end):
            q[i] = np.rint(rows[i] / steps[i]).clip(LOWEST, HIGHEST)
            errors[i - start] = (rows[i] - q[i] * steps[i]) / factor[i, i]
            rows[i + 1 : end] -= np.outer(factor[i, i + 1 : end], errors[i - start])
        rows[end:] -= factor[start:end, end:].T @ errors
    back = np.empty_like(q)
    back[order] = q
    return back
