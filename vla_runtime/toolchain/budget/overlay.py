"""Measured stage times laid over predicted ones.

Read are: what ``vla bench policy --json`` writes (``stages: {vision: {p50_ms: ...}}``), the same with bare numbers, and
what ``ros2 topic echo policy/latency`` prints (labels and data; several messages are condensed to their median).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.files import LOADER
from vla_runtime.toolchain.budget.roofline import Budget
from vla_runtime.toolchain.budget.stages import ALIASES, STAGES, canonical

# The first of these that a stage has is taken; all in ms for the whole stage
TIMES = ("p50_ms", "mean_ms", "ms")
CLOSE = 0.25  # a prediction within 25 % of the measurement is called close


@dataclass(frozen=True)
class Measured:
    """Stage times from a file: canonical name -> ms; ``steps`` of the action stage and ``threads``, if it says so."""

    source: str
    stage_ms: dict[str, float]
    steps: int | None = None
    threads: int | None = None
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One stage, predicted and measured, in ms. ``efficiency`` is the share of the roofline that was reached."""

    stage: str
    predicted_ms: float
    measured_ms: float
    roofline_ms: float
    floor_ms: float
    bound: str

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_ms / self.predicted_ms if self.predicted_ms else float("inf")

    @property
    def close(self) -> bool:
        """Whether the prediction is within 25 % of the measurement."""
        return abs(self.predicted_ms - self.measured_ms) <= CLOSE * self.measured_ms

    @property
    def floor_ratio(self) -> float:
        """Measured over the physical floor."""
        return self.measured_ms / self.floor_ms if self.floor_ms else float("inf")

    @property
    def efficiency(self) -> float:
        """Roofline over measured."""
        return self.roofline_ms / self.measured_ms


def read_measured(path: str | Path) -> Measured:
    """Read stage times from a file.

    Raises:
        BudgetError: the file is missing, malformed, or has no stage that a budget knows; the text says which.
    """
    try:
        documents = _documents(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BudgetError(f"measured file '{path}': cannot be read: {error}") from None
    if not documents or not all(isinstance(item, dict) for item in documents):
        raise BudgetError(
            f"measured file '{path}': it must hold the JSON of `vla bench policy` or echoed latency messages"
        )
    if all("layout" in item and "data" in item for item in documents):
        return _from_messages(str(path), documents)
    content = documents[0]
    stages = content.get("stages", content.get("stage_ms"))
    if not isinstance(stages, dict) or not stages:
        raise BudgetError(f"measured file '{path}': no 'stages' in it; write it with `vla bench policy --json {path}`")
    times, ignored, steps = {}, [], None
    for name, entry in stages.items():
        if name not in STAGES and name not in ALIASES:
            ignored.append(str(name))
            continue
        times[canonical(name)] = _time(f"measured file '{path}': stages.{name}", entry)
        if canonical(name) == "action" and isinstance(entry, dict):
            steps = entry.get("steps")
    return _checked(str(path), times, ignored, steps, (content.get("machine") or {}))


def rows(budget: Budget, measured: Measured) -> list[Row]:
    """Return the stages that are both predicted and measured, in the order of the budget.

    An action stage that was measured with another number of steps is scaled to the budget's.

    Raises:
        BudgetError: there is none.
    """
    found = []
    for stage in budget.stages:
        if stage.name in measured.stage_ms:
            scale = stage.passes / measured.steps if stage.name == "action" and measured.steps else 1.0
            time_ms = measured.stage_ms[stage.name] * scale
            found.append(Row(stage.name, stage.ms, time_ms, stage.roofline_ms, stage.floor_ms, stage.bound))
    if not found:
        have, want = ", ".join(measured.stage_ms), ", ".join(stage.name for stage in budget.stages)
        raise BudgetError(f"{measured.source} has the stages {have}, {budget.policy} has {want}: none in common")
    return found


def _documents(text: str) -> list[Any]:
    """JSON first: YAML 1.1 takes 1e-05 for a word."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [item for item in yaml.load_all(text, Loader=LOADER) if item]


def _from_messages(path: str, messages: Iterable[Mapping[str, Any]]) -> Measured:
    series: dict[str, list[float]] = {}
    ignored: set[str] = set()
    for message in messages:
        try:
            labels = [str(dim["label"]) for dim in message["layout"]["dim"]]
            values = [float(value) for value in message["data"]]
        except (KeyError, TypeError, ValueError):
            raise BudgetError(
                f"measured file '{path}': a message has no layout.dim[].label with numbers in data"
            ) from None
        for label, value in zip(labels, values):
            if label in STAGES or label in ALIASES:
                series.setdefault(canonical(label), []).append(value)
            else:
                ignored.add(label)
    times = {name: _time(f"measured file '{path}': {name}", median(values)) for name, values in series.items()}
    return _checked(path, times, sorted(ignored), None, {})


def _checked(path: str, times: dict, ignored: Iterable[str], steps, machine) -> Measured:
    if not times:
        raise BudgetError(
            f"measured file '{path}': no stage called {', '.join(STAGES)} (or {', '.join(ALIASES)}) in it"
        )
    threads = machine.get("threads") if isinstance(machine, dict) else None
    for what, value in (("steps", steps), ("machine.threads", threads)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise BudgetError(f"measured file '{path}': {what} must be a positive whole number, not {value!r}")
    return Measured(path, times, steps, threads, tuple(ignored))


def _time(where: str, entry: Any) -> float:
    value = entry
    if isinstance(entry, dict):
        key = next((key for key in TIMES if key in entry), None)
        if key is None:
            raise BudgetError(f"{where}: none of {', '.join(TIMES)} in it")
        where, value = f"{where}.{key}", entry[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise BudgetError(f"{where} must be a time above 0 ms, not {value!r}")
    return float(value)
