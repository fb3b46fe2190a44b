"""A report as JSON: every key and its unit is documented in data/schema.json, and held to it by a test."""

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from vla_runtime.toolchain.budget.overlay import Row
from vla_runtime.toolchain.budget.report import Report

FORMAT = "vla-budget/1"
COMPARISON = "vla-budget-comparison/1"


def comparison_dict(results: Sequence[Report]) -> dict[str, Any]:
    """Return several reports side by side."""
    return {"format": COMPARISON, "budgets": [as_dict(result) for result in results]}


def as_dict(result: Report) -> dict[str, Any]:
    """Return the report as JSON-ready values; see data/schema.json for every key and its unit."""
    stages = {name: _stage(result, name, ms) for name, ms in result.stage_ms.items()}
    branches, profile = result.branches, result.profile
    low, high = result.steps, branches.steps_max or result.steps
    return {
        "format": FORMAT,
        "policy": result.policy,
        "device": result.device,
        "precision": result.precision,
        "bandwidth_unit": result.budget.unit if result.budget else None,
        "stages": stages,
        "total_ms": result.total_ms,
        "roofline_total_ms": result.budget.roofline_ms if result.budget else None,
        "floor_total_ms": result.budget.floor_ms if result.budget else None,
        "inferences_per_s": 1e3 / result.total_ms if result.total_ms else None,
        "profile": {
            **{key: getattr(profile, key) for key in ("vision_ms", "prefill_ms", "token_ms", "step_ms")},
            "steps": low,
            "steps_max": high,
            "reasoning_tokens": branches.reasoning_tokens,
            "share": branches.share,
            "expected_ms": result.control.mean_ms,
            "worst_ms": result.control.slow_ms,
        },
        "control": {key: _finite(value) for key, value in asdict(result.control).items()}
        | {"safe": result.control.safe, "verdict": result.control.verdict},
        "flags": [asdict(flag) for flag in result.flags],
        "first_stage": result.first,
        "advice": [asdict(advice) for advice in result.advice],
        "overlay": {row.stage: _row(row) for row in result.overlay},
        "notes": result.notes,
    }


def _stage(result: Report, name: str, ms: float) -> dict[str, Any]:
    stage = result.budget.stage(name) if result.budget else None
    if stage is None:
        return {"ms": ms, "bound": "published"}
    return {
        "ms": ms,
        "bound": stage.bound,
        "roofline_ms": stage.roofline_ms,
        "floor_ms": stage.floor_ms,
        "compute_ms": stage.compute_ms,
        "memory_ms": stage.memory_ms,
        "overhead_ms": stage.overhead_ms,
        "intensity_flop_per_byte": stage.intensity,
        "gflop": stage.flop / 1e9,
        "moved_mb": stage.bytes / 1e6,
        "weight_mb": stage.weight_bytes / 1e6,
        "passes": stage.passes,
        "precision": stage.precision,
        "efficiency": stage.efficiency.value,
        "efficiency_source": stage.efficiency.source,
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "predicted_ms": row.predicted_ms,
        "measured_ms": row.measured_ms,
        "measured_over_predicted": _finite(row.ratio),
        "within_25_percent": row.close,
        "floor_ms": row.floor_ms,
        "measured_over_floor": _finite(row.floor_ratio),
        "measured_efficiency": row.efficiency,
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: null stands for "no limit"."""
    return None if isinstance(value, float) and not isfinite(value) else value
