"""Statuses by REP-107: plain values here, messages at the edge."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from vla_runtime.nodes.loop import LoopFigures


class Level(IntEnum):
    """The levels of REP-107."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class Status:
    """One task's state: level, one line for people, and values."""

    name: str
    level: Level = Level.OK
    message: str = "ok"
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_msg(self, prefix: str = "", hardware_id: str = "") -> DiagnosticStatus:
        """As a message; ``prefix`` is the node's name, as diagnostic_updater writes it (``node: task``)."""
        return DiagnosticStatus(
            level=bytes([self.level]),
            name=f"{prefix}: {self.name}" if prefix else self.name,
            message=self.message,
            hardware_id=hardware_id,
            values=[KeyValue(key=str(key), value=text(value)) for key, value in flat(self.values)],
        )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested mappings as dotted keys: {"drops": {"late": 2}} gives drops.late."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def text(value: Any) -> str:
    """A value as people read it: floats with four significant digits, bools in lower case."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return str(value)


def loop_status(
    figures: LoopFigures, period_s: float, realtime_refusal: str, lock_refusal: str, max_missed_share: float = 1e-3
) -> Status:
    """How regular the control loop is, and whether it has its priority."""
    values = {
        "rate_hz": figures.rate_hz,
        "period_error_p99_ms": figures.period_error_p99_ms,
        "max_gap_ms": figures.max_gap_ms,
        "tick_p99_ms": figures.tick_p99_ms,
        "tick_max_ms": figures.tick_max_ms,
        "ticks": figures.ticks,
        "missed_ticks": figures.missed,
        "failed_ticks": figures.failed,
        "realtime": realtime_refusal or "SCHED_FIFO",
        "memory": lock_refusal or "locked",
    }
    period_ms = 1e3 * period_s
    if figures.failed:
        return Status("loop", Level.ERROR, f"{figures.failed} ticks failed: see the log for the tracebacks", values)
    if figures.max_gap_ms > 2 * period_ms:
        gap = f"a gap of {figures.max_gap_ms:.1f} ms in the last minute (period {period_ms:.0f} ms)"
        return Status("loop", Level.WARN, gap + ("; no real-time priority" if realtime_refusal else ""), values)
    if figures.missed > max_missed_share * max(figures.ticks, 1000):
        return Status("loop", Level.WARN, f"{figures.missed} of {figures.ticks} ticks missed", values)
    if realtime_refusal:
        return Status("loop", Level.WARN, realtime_refusal, values)
    return Status("loop", Level.OK, f"{figures.rate_hz:.1f} Hz", values)
