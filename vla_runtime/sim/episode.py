"""What came out of closed-loop episodes: one by one, and together with their uncertainty."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla_runtime.toolchain.parity.statistics import wilson


@dataclass(frozen=True)
class EpisodeResult:
    """One episode. Angles rad, times s of simulated time; `inference_ms` is what this machine really took."""

    seed: int
    instruction: str
    success: bool
    wrong_object: bool
    lift_time_s: float | None
    duration_s: float
    requests: int
    answers: int
    inference_ms: tuple[float, ...]
    seam_jumps: tuple[float, ...]  # largest |new plan - running command| of any blended joint at each change of plan
    jerk: float  # root mean square over time and blended joints of the commanded jerk, rad/s^3
    path_length: float  # sum over blended joints of the way that was commanded
    starved_ticks: int  # control periods after the first command in which the executor had nothing valid to say
    ticks: int
    time_in_state_s: dict[str, float]
    deadline_misses: int
    refused_plans: int
    rejected_messages: int
    elapsed_executed: int
    violations: dict[str, int]
    log: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def how(self) -> str:
        """`success`, `wrong_object`, or `not_lifted`."""
        return "success" if self.success else "wrong_object" if self.wrong_object else "not_lifted"

    @property
    def limit_violations(self) -> int:
        """All that the independent checkers found."""
        return sum(self.violations.values())


def percentiles(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """p50, p95, p99 and max; zeros where there is nothing."""
    if not len(values):
        return dict.fromkeys(("p50", "p95", "p99", "max"), 0.0)
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    figures = {"p50": p50, "p95": p95, "p99": p99, "max": max(values)}
    return {name: round(float(value), digits) for name, value in figures.items()}


def summarise(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """All episodes together: plain values, for JSON and for tables.

    `success_interval`: Wilson's interval of the success rate at 95 %.
    """
    n = len(results)
    successes = sum(r.success for r in results)
    low, high = wilson(successes, n)
    states: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    for result in results:
        states.update(result.time_in_state_s)
        violations.update(result.violations)
    simulated = sum(r.duration_s for r in results)
    lifts = [r.lift_time_s for r in results if r.lift_time_s is not None]
    return {
        "episodes": n,
        "successes": successes,
        "success_rate": successes / n if n else 0.0,
        "success_interval": [low, high],
        "wrong_object": sum(r.wrong_object for r in results),
        "lift_time_s": percentiles(lifts, 3),
        "inference_ms": percentiles([ms for r in results for ms in r.inference_ms], 2),
        "seam_jump_rad": percentiles([jump for r in results for jump in r.seam_jumps], 5),
        "jerk_rms": _mean([r.jerk for r in results]),
        "path_length_rad": _mean([r.path_length for r in results]),
        "action_rate_hz": sum(r.answers for r in results) / simulated if simulated else 0.0,
        "starved_share": sum(r.starved_ticks for r in results) / max(sum(r.ticks for r in results), 1),
        "deadline_misses": sum(r.deadline_misses for r in results),
        "refused_plans": sum(r.refused_plans for r in results),
        "rejected_messages": sum(r.rejected_messages for r in results),
        "elapsed_executed": sum(r.elapsed_executed for r in results),
        "limit_violations": sum(violations.values()),
        "violations": dict(violations),
        "time_in_state_s": {state: round(seconds, 3) for state, seconds in states.items()},
        "simulated_s": round(simulated, 2),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
