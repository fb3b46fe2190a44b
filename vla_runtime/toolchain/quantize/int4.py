"""Symmetric signed INT4 in groups along the input axis: numbers only.

A weight is (K, N): input by output. A group is ``block`` consecutive inputs of one output. TensorRT takes no zero
points, so there are none: w = q * scale with q in [-8, 7].
"""

import numpy as np

LOWEST, HIGHEST = -8, 7


def blocks_of(weight: np.ndarray, block: int) -> np.ndarray:
    """View (K, N) as (K/block, block, N)."""
    k, n = weight.shape
    if k % block:
        raise ValueError(f"{k} inputs do not divide into blocks of {block}")
    return weight.reshape(k // block, block, n)


def largest(weight: np.ndarray, block: int) -> np.ndarray:
    """(K/block, N) largest magnitude of each group."""
    return np.abs(blocks_of(weight, block)).max(axis=1)


def quantise(weight: np.ndarray, block: int, reach: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return (q (K, N) int8 in [-8, 7], scales (K/block, N) float32).

    ``reach``: the largest magnitude that each group still represents; default: the largest there is. Values beyond
    it are clipped. Groups of zeros get scale 1.
    """
    reach = largest(weight, block) if reach is None else reach
    scales = (reach / HIGHEST).astype(np.float32)
    scales[scales == 0] = 1.0
    q = np.rint(blocks_of(weight, block) / scales[:, None, :]).clip(LOWEST, HIGHEST)
    return q.reshape(weight.shape).astype(np.int8), scales


def dequantise(q: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return (K, N) float32."""
    block = q.shape[0] // scales.shape[0]
    return (blocks_of(q, block).astype(np.float32) * scales[:, None, :]).reshape(q.shape)


def rounded(weight: np.ndarray, block: int, reach: np.ndarray | None = None) -> np.ndarray:
    """Return (K, N) float32: what is left of ``weight`` after INT4."""
    return dequantise(*quantise(weight, block, reach))


def pack(q: np.ndarray) -> bytes:
    """Pack int4 values row by row, two in a byte, the first in the low nibble: ONNX's INT4 form."""
    flat = q.astype(np.int8).ravel()
    if flat.size % 2:
        flat = np.append(flat, np.int8(0))
    nibbles = flat.view(np.uint8) & 0x0F
    return (nibbles[0::2] | (nibbles[1::2] << 4)).tobytes()


def best_block(inputs: int, wanted: int) -> int | None:
    """Return the largest block of ``wanted``, its half, ... down to 16 that divides the number of inputs."""
    block = wanted
    while block >= 16:
        if inputs % block == 0:
            return block
        block //= 2
    return None
