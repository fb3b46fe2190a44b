"""Reads AutoAWQ's GEMM checkpoints, and turns their asymmetric weights into ours.

A linear is three tensors: ``qweight`` int32 (K, N/8), ``qzeros`` int32 (K/group, N/8), ``scales`` (K/group, N). Each
int32 holds eight 4-bit numbers; nibble i belongs to output 8c + ORDER[i] of column c. W = (q - z) * s.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.int4 import quantise, rounded

ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
PARTS = ("qweight", "qzeros", "scales")


@dataclass(frozen=True)
class Requantised:
    """One linear as symmetric INT4, and what that cost: |W' - W| / |W| (0 where the zero points were all 8)."""

    q: np.ndarray  # (K, N) int8
    scales: np.ndarray  # (K/group, N) float32
    relative_cost: float


def unpack(packed: np.ndarray) -> np.ndarray:
    """Return (rows, 8 * columns) uint8 in 0..15 from (rows, columns) int32."""
    shifts = np.arange(8, dtype=np.uint32) * 4
    nibbles = (packed.astype(np.uint32)[..., None] >> shifts) & 0xF
    ordered = np.empty_like(nibbles)
    ordered[..., ORDER] = nibbles
    return ordered.reshape(packed.shape[0], -1).astype(np.uint8)


def dequantise_linear(tensors: Mapping[str, np.ndarray], name: str, group: int) -> np.ndarray:
    """Return W (K, N) float32 of the linear ``name``; UserError naming the tensor that is missing or does not fit."""
    missing = [f"{name}.{part}" for part in PARTS if f"{name}.{part}" not in tensors]
    if missing:
        raise UserError(f"the checkpoint lacks {missing}: not an AutoAWQ GEMM checkpoint?")
    qweight, qzeros, scales = (tensors[f"{name}.{part}"] for part in PARTS)
    k, n = qweight.shape[0], qweight.shape[1] * 8
    wanted = {"qzeros": (k // group, n // 8), "scales": (k // group, n)}
    for part, shape in wanted.items():
        found = tensors[f"{name}.{part}"].shape
        if k % group or found != shape:
            raise UserError(
                f"'{name}.{part}' is {list(found)}; qweight {list(qweight.shape)} and group {group} need {list(shape)}"
            )
    zeros = np.repeat(unpack(qzeros), group, axis=0).astype(np.float32)
    steps = np.repeat(scales.astype(np.float32), group, axis=0)
    return (unpack(qweight).astype(np.float32) - zeros) * steps


def requantise(tensors: Mapping[str, np.ndarray], name: str, group: int) -> Requantised:
    """Return the linear ``name`` as symmetric INT4 with the same groups.

    Weights whose zero points are all 8 are symmetric already and keep their values exactly; others are rounded again
    (TensorRT takes no zero points).
    """
    weight = dequantise_linear(tensors, name, group)
    if (unpack(tensors[f"{name}.qzeros"]) == 8).all():
        q = unpack(tensors[f"{name}.qweight"]).astype(np.int8) - np.int8(8)
        return Requantised(q, tensors[f"{name}.scales"].astype(np.float32), 0.0)
    q, scales = quantise(weight, group)
    cost = float(np.linalg.norm(rounded(weight, group) - weight) / max(np.linalg.norm(weight), 1e-30))
    return Requantised(q, scales, cost)


def group_size(config: Mapping) -> int:
    """Return the group size of a checkpoint's config.json; UserError when it is not AutoAWQ's 4-bit GEMM form."""
    found = config.get("quantization_config") or {}
    wanted = {"quant_method": "awq", "bits": 4, "version": "gemm"}
    wrong = {key: found.get(key) for key, value in wanted.items() if str(found.get(key)).lower() != str(value)}
    if wrong:
        raise UserError(f"quantization_config has {wrong}; only {wanted} is read")
    return int(found.get("group_size", 128))
