"""Puts INT4 weights that a checkpoint brought along back into the stages that PyTorch wrote as float32.

The exporter renames and transposes weights, so a linear is known by its numbers: they are exactly what INT4 stands for.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.autoawq import Requantised
from vla_runtime.toolchain.quantize.fusion import inspect_fusion
from vla_runtime.toolchain.quantize.int4 import dequantise
from vla_runtime.toolchain.quantize.linears import Linear, find_linears
from vla_runtime.toolchain.quantize.rewrite import GroupPlan, Quantised, rewrite


class Int4Stages:
    """The linears of a checkpoint that came as INT4, by name."""

    def __init__(self, linears: Mapping[str, Requantised]):
        self.linears = dict(linears)
        first = next(iter(self.linears.values()))
        self._block = first.q.shape[0] // first.scales.shape[0]  # one group size for the whole checkpoint
        self._by_numbers = {_digest(dequantise(each.q, each.scales)): each for each in linears.values()}

    def put_into(self, path: Path) -> int:
        """Rewrite the stage ``path`` with INT4 weights; return how many linears have them.

        Raises UserError when ONNX Runtime would not fuse one of them.
        """
        model = onnx.load(str(path))
        groups, _ = find_linears(model, self._block)
        plans = []
        for source, linears in groups.items():
            members = [made for made in map(self._match, linears) if made is not None]
            if members:
                plans.append(GroupPlan(source, None, members))
        count = sum(len(plan.members) for plan in plans)
        if count == 0:
            return 0
        path.write_bytes(rewrite(model, plans).SerializeToString(deterministic=True))
        for extra in path.parent.glob(f"{path.name}.data"):
            extra.unlink()
        fusion = inspect_fusion(path)
        if fusion.unfused or fusion.fused != count:
            raise UserError(f"{path}: ONNX Runtime fused {fusion.fused} of {count} INT4 layers")
        return count

    def provenance(self) -> dict:
        """Return what the bundle says of them: by name, how far rounding again moved the weights (relative norm)."""
        costs = {name: round(each.relative_cost, 6) for name, each in self.linears.items()}
        return {"method": "AutoAWQ, symmetric", "worst_cost": max(costs.values()), "cost": costs}

    def summary(self) -> str:
        """One line for people."""
        costs = [each.relative_cost for each in self.linears.values()]
        again = sum(cost > 0 for cost in costs)
        return (
            f"AutoAWQ: {len(costs)} INT4 linears, {again} of them asymmetric and rounded again: weights moved by "
            f"{100 * float(np.mean(costs)):.2f} % of their norm on average, {100 * max(costs):.2f} % at most"
        )

    def _match(self, linear: Linear) -> Quantised | None:
        found = self._by_numbers.get(_digest(linear.weight))
        return None if found is None else Quantised(linear, found.q, found.scales)


def _digest(weight: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(weight, np.float32).tobytes()).digest()
