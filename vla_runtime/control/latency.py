"""Rolling figures of how long things take, and a log of what came too late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

PERCENTILES = (50, 95, 99)


class Rolling:
    """The last ``size`` values of one quantity. Percentiles are values that occurred (nearest rank)."""

    def __init__(self, size: int = 500):
        self._values: deque[float] = deque(maxlen=size)
        self.count = 0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Take a value in; one that is not finite is left out."""
        if math.isfinite(value):
            self._values.append(value)
            self.count += 1

    def percentile(self, q: float) -> float:
        """Return the q-th percentile, 0 < q <= 100; 0.0 while there is nothing."""
        if not self._values:
            return 0.0
        ordered = sorted(self._values)
        return ordered[max(0, math.ceil(q / 100.0 * len(ordered) - 1e-9) - 1)]

    def recent_max(self, last: int | None = None) -> float:
        """Return the largest of the last ``last`` values (of all that are kept); 0.0 while there is nothing."""
        if not self._values:
            return 0.0
        start = 0 if last is None else max(0, len(self._values) - last)
        return max(self._values[i] for i in range(start, len(self._values)))

    def clear(self) -> None:
        """Forget the values; ``count`` goes on."""
        self._values.clear()

    def summary(self, scale: float = 1.0, digits: int = 3) -> dict[str, float]:
        """Return ``{"p50", "p95", "p99", "max"}``, each times ``scale`` (1000: seconds to ms)."""
        if not self._values:
            return {**{f"p{q}": 0.0 for q in PERCENTILES}, "max": 0.0}
        ordered = sorted(self._values)
        n = len(ordered)
        figures = {f"p{q}": ordered[max(0, math.ceil(q * n / 100.0 - 1e-9) - 1)] for q in PERCENTILES}
        figures["max"] = ordered[-1]
        return {key: round(value * scale, digits) for key, value in figures.items()}


class StageLatencies:
    """Rolling latencies by stage ("preprocess", "vision", "answer" ...). Stages appear as they are first seen."""

    def __init__(self, size: int = 500, max_stages: int = 64):
        self._size, self._max_stages = size, max_stages
        self._stages: dict[str, Rolling] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Take in one time. Beyond ``max_stages`` names, new names go under "other": memory stays bounded."""
        if stage not in self._stages and len(self._stages) >= self._max_stages:
            stage = "other"
        self._stages.setdefault(stage, Rolling(self._size)).add(seconds)

    def add_all(self, stages_ms: Mapping[str, float]) -> None:
        """Take in the stages of one answer, in ms."""
        for stage, ms in stages_ms.items():
            self.add(stage, ms / 1000.0)

    def slowest(self) -> str:
        """Return the stage with the largest median, "" while there is none."""
        return max(self._stages, key=lambda stage: self._stages[stage].percentile(50), default="")

    def summary_ms(self) -> dict[str, dict[str, float]]:
        """Return p50, p95, p99 and max in ms by stage."""
        return {stage: rolling.summary(1000.0) for stage, rolling in self._stages.items()}


@dataclass(frozen=True)
class Miss:
    """Something that came too late: when it was noticed (steady s), why, how old it was, in which stage."""

    t: float
    cause: str
    age_s: float
    stage: str = ""


class MissLog:
    """The last misses, and how many of each cause there were."""

    def __init__(self, size: int = 100):
        self._misses: deque[Miss] = deque(maxlen=size)
        self.counts: dict[str, int] = {}

    def add(self, t: float, cause: str, age_s: float, stage: str = "") -> Miss:
        """Log one miss."""
        miss = Miss(t, cause, age_s, stage)
        self._misses.append(miss)
        self.counts[cause] = self.counts.get(cause, 0) + 1
        return miss

    @property
    def total(self) -> int:
        """How many misses there were in all."""
        return sum(self.counts.values())

    def last(self, n: int | None = None) -> list[Miss]:
        """Return the newest ``n`` misses that are kept (all by default), oldest first."""
        misses = list(self._misses)
        return misses if n is None else misses[-n:] if n else []
