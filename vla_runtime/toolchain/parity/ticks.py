"""Level (b): whole inferences, same observation, same noise: error per joint and per position in the chunk."""

from collections.abc import Sequence

import numpy as np

from vla_runtime.toolchain.parity.budgets import TickBudget
from vla_runtime.toolchain.parity.levels import Level, judge


def compare_ticks(
    reference: np.ndarray, candidate: np.ndarray, std: Sequence[float], joints: Sequence[str], budget: TickBudget
) -> Level:
    """Compare two sets of chunks, (N, H, n) rad; errors are judged in units of ``std`` (n,)."""
    error = candidate - reference
    if not np.isfinite(error).all():
        return judge("ticks", ["an action is not finite"], {})
    scaled = error / np.asarray(std)
    mse = (scaled**2).mean(axis=(0, 1))
    p99 = np.percentile(np.abs(scaled), 99, axis=(0, 1))
    by_position = np.sqrt((scaled**2).mean(axis=(0, 2)))
    faults = []
    worst_at = int(by_position.argmax())
    where = f"largest at row {worst_at} of {len(by_position)}"
    for joint, joint_mse, joint_p99 in zip(joints, mse, p99):
        if joint_mse > budget.mse:
            faults.append(f"joint '{joint}': mean squared error {joint_mse:.4g}, the budget {budget.mse} ({where})")
        if joint_p99 > budget.p99:
            faults.append(f"joint '{joint}': P99 error {joint_p99:.4g}, the budget {budget.p99} ({where})")
    return judge(
        "ticks",
        faults,
        {
            "observations": len(reference),
            "joints": list(joints),
            "mse": mse.tolist(),
            "p99": p99.tolist(),
            "rmse_rad": np.sqrt((error**2).mean(axis=(0, 1))).tolist(),
            "max_abs_rad": float(np.abs(error).max()),
            "rmse_by_position": by_position.tolist(),
        },
    )
