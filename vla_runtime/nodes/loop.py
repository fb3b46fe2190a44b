"""The control loop: a thread of its own on absolute deadlines of the steady clock.

A tick that is late runs at once; ticks whose whole period has passed are skipped and counted, never replayed in a
burst. Deadlines are multiples of the period (plus a phase), so that loops in several processes of one host keep
their order: the executor first, then the watchdog. A loop with a lead works before the deadline and
speaks at it: how long its work took is then no jitter of the stream.
"""

import math
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vla_runtime.nodes.realtime import request_realtime, reserve_heap

WINDOW = 3000
"""Ticks over which the figures are taken: one minute at 50 Hz."""


@dataclass(frozen=True)
class LoopFigures:
    """What the loop did over the last minute (ms), and since its start (counts)."""

    ticks: int
    missed: int
    failed: int
    rate_hz: float
    period_error_p99_ms: float
    max_gap_ms: float
    tick_p99_ms: float
    tick_max_ms: float


class LoopStatistics:
    """Periods (from what a tick says to what the next says) and tick durations in a ring; written by the loop alone."""

    def __init__(self, period_s: float, window: int = WINDOW):
        self._period_s = period_s
        self._starts = np.zeros(window)
        self._durations = np.zeros(window)
        self._window = window
        self.ticks = 0
        self.missed = 0
        self.failed = 0

    def add(self, started: float, duration_s: float) -> None:
        """Note one tick: when it spoke or, with nothing to say, started (steady seconds), and how long it worked."""
        slot = self.ticks % self._window
        self._starts[slot] = started
        self._durations[slot] = duration_s
        self.ticks += 1

    def figures(self) -> LoopFigures:
        """The figures of the ring; zeros before the second tick."""
        count = min(self.ticks, self._window)
        starts = np.sort(self._starts[:count])
        periods = np.diff(starts)
        if not len(periods):
            return LoopFigures(self.ticks, self.missed, self.failed, 0.0, 0.0, 0.0, 0.0, 0.0)
        durations = self._durations[:count]
        return LoopFigures(
            ticks=self.ticks,
            missed=self.missed,
            failed=self.failed,
            rate_hz=len(periods) / (starts[-1] - starts[0]),
            period_error_p99_ms=1e3 * float(np.percentile(np.abs(periods - self._period_s), 99)),
            max_gap_ms=1e3 * float(periods.max()),
            tick_p99_ms=1e3 * float(np.percentile(durations, 99)),
            tick_max_ms=1e3 * float(durations.max()),
        )


def next_deadline(now: float, period_s: float, phase_s: float) -> float:
    """The first multiple of the period, plus the phase, after ``now``."""
    return (math.floor((now - phase_s) / period_s) + 1) * period_s + phase_s


class ControlLoop:
    """Calls ``tick(now)`` once per period from a thread of its own, from ``start`` to ``stop``.

    ``tick`` is called ``lead_s`` before its deadline, with the deadline (or the present, where that is later), and may
    return a function: that is called at the deadline. An exception of either does not end the loop: ``on_error`` gets
    the traceback as text, from the loop's thread.
    """

    def __init__(
        self,
        tick: Callable[[float], Callable[[], None] | None],
        period_s: float,
        *,
        name: str,
        phase_s: float = 0.0,
        lead_s: float = 0.0,
        priority: int = 0,
        on_error: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._tick = tick
        self._period_s = period_s
        self._phase_s = phase_s
        self._lead_s = lead_s
        self._priority = priority
        self._on_error = on_error
        self._clock = clock
        self._sleep = sleep
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.statistics = LoopStatistics(period_s)
        self.realtime_refusal = ""

    def start(self) -> None:
        """Begin; returns when the thread has its priority, or knows why not (``realtime_refusal``)."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Let the running tick finish and end the thread. Afterwards no tick runs any more."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        reserve_heap()
        self.realtime_refusal = request_realtime(self._priority)
        self._ready.set()
        statistics = self.statistics
        # Counted, not added up: on a host that is up for two months the rounding of the sum would be 2 ms a day.
        deadline = next_deadline(self._clock() + self._lead_s, self._period_s, self._phase_s)
        count = round((deadline - self._phase_s) / self._period_s)
        while not self._stopping.is_set():
            self._sleep_until(deadline - self._lead_s)
            if self._stopping.is_set():
                return
            started = spoke = self._clock()
            late = math.floor((started - deadline) / self._period_s)
            if late > 0:
                statistics.missed += late
                count += late
                deadline = self._deadline(count)
            waited = 0.0
            try:
                speak = self._tick(max(started, deadline))
                if speak is not None:
                    ready = self._clock()
                    self._sleep_until(deadline)
                    spoke = self._clock()
                    waited = spoke - ready
                    speak()
            except Exception:
                statistics.failed += 1
                self._on_error(traceback.format_exc())
            statistics.add(spoke, self._clock() - started - waited)
            count += 1
            deadline = self._deadline(count)

    def _deadline(self, count: int) -> float:
        return count * self._period_s + self._phase_s

    def _sleep_until(self, instant: float) -> None:
        wait = instant - self._clock()
        if wait > 0:
            self._sleep(wait)
