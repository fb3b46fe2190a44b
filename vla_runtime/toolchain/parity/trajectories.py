"""Level (c): where the tool goes. Chunks are carried through forward kinematics; their drift is in metres."""

from collections.abc import Callable, Sequence

import numpy as np

from vla_runtime.toolchain.parity.budgets import TrajectoryBudget
from vla_runtime.toolchain.parity.levels import MISSING, Level, judge

SO101 = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
Forward = Callable[[np.ndarray], np.ndarray]


def forward_kinematics(joints: Sequence[str]) -> Forward | None:
    """Return the tool point (3,) m as a function of the action's joints (rad), where the arm is known by its names."""
    if not set(SO101) <= set(joints):
        return None
    from vla_runtime.sim.kinematics import forward

    order = [list(joints).index(joint) for joint in SO101]
    return lambda positions: forward(positions[order])[0]


def compare_trajectories(
    reference: np.ndarray, candidate: np.ndarray, forward: Forward | None, budget: TrajectoryBudget
) -> Level:
    """Compare the tool points along two sets of chunks, (N, H, n) rad; MISSING without kinematics."""
    if forward is None:
        return Level("trajectories", MISSING, ["the forward kinematics of these joints is not known"])
    points = [np.array([[forward(row) for row in chunk] for chunk in chunks]) for chunks in (reference, candidate)]
    distance = np.linalg.norm(points[1] - points[0], axis=-1)
    figures = {
        "mean_m": float(distance.mean()),
        "p99_m": float(np.percentile(distance, 99)),
        "max_m": float(distance.max()),
        "mean_m_by_position": distance.mean(axis=0).tolist(),
    }
    faults = [
        f"the tool drifts {figures[key] * 1e3:.2f} mm ({key[:-2]}), the budget {most * 1e3:.2f} mm"
        for key, most in (("mean_m", budget.mean_m), ("p99_m", budget.p99_m))
        if figures[key] > most
    ]
    return judge("trajectories", faults, figures)
