"""When to ask for the next plan: every K ticks or below a queue threshold, one request in flight; and which K is safe.

A delay is counted from the observation (or the request, whichever is earlier) to the answer's arrival. For planning
it is the largest of the last ten (Black et al. 2025, RTC: "max of the last b delays, not a mean"); for the range of K
it is the 99th percentile over a window. The first answer after a start and an answer after an idle gap are left out:
they pay for warm-up, and one of them would stand in the window for minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vla_runtime.control.latency import Rolling

RECENT = 10


@dataclass(frozen=True)
class KRange:
    """Safe numbers of control ticks between requests: ``d <= K <= H - d``. Empty when ``low > high``.

    H is the time from a chunk's first waypoint to its last: after that the arm would wait for the next one.
    """

    low: int
    high: int

    def __contains__(self, k: int) -> bool:
        return self.low <= k <= self.high

    def clamp(self, k: int) -> int:
        """Return the nearest safe K. Of an empty range: K, or d where that is less.

        With one request in flight a K below the delay asks as soon as an answer is there, so it never waits too long.
        Raising it to a delay beyond the horizon, which one late answer can make of the 99th percentile, would leave
        every plan to be used up.
        """
        if self.low > self.high:
            return min(k, self.low)
        return max(self.low, min(k, self.high))

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" if self.low <= self.high else "none"


def k_range(delay_s: float, horizon: int, dt: float, period_s: float) -> KRange:
    """Return the safe K for an inference delay (s), a horizon of steps of ``dt`` s, and a control period (s)."""
    low = delay_ticks(delay_s, period_s)
    return KRange(low, horizon_ticks(horizon, dt, period_s) - low)


def delay_ticks(delay_s: float, period_s: float) -> int:
    """Return d: control ticks until an answer is in command, at least one."""
    return max(1, math.ceil(delay_s / period_s - 1e-9))


def horizon_ticks(horizon: int, dt: float, period_s: float) -> int:
    """Return H: whole control ticks from the first to the last of ``horizon`` waypoints, ``dt`` s apart."""
    return math.floor((horizon - 1) * dt / period_s + 1e-9)


class DelayEstimate:
    """The inference delay, from answers; seconds."""

    def __init__(self, initial_s: float, window: int, warmup_answers: int, idle_gap_s: float):
        self._initial, self._warmup, self._idle_gap = initial_s, warmup_answers, idle_gap_s
        self._warm = Rolling(window)
        self._left_out_last: float | None = None
        self._to_warm_up = warmup_answers
        self._last_answer: float | None = None
        self.left_out = 0

    def answered(self, sent: float, t0: float, received: float) -> float:
        """Take in one answer; return its delay."""
        delay = received - min(sent, t0)
        idle = self._last_answer is not None and sent - self._last_answer > self._idle_gap
        self._last_answer = received
        if self._to_warm_up > 0 or idle:
            self._to_warm_up = max(0, self._to_warm_up - 1)
            self._left_out_last = delay
            self.left_out += 1
        else:
            self._warm.add(delay)
        return delay

    def restarted(self) -> None:
        """Expect a warm-up again: the policy, or this node, may have started anew."""
        self._to_warm_up = self._warmup

    @property
    def planning(self) -> float:
        """The delay to plan for: the largest of the last ten."""
        if len(self._warm):
            return self._warm.recent_max(RECENT)
        return self._initial if self._left_out_last is None else self._left_out_last

    @property
    def high(self) -> float:
        """The delay that the range of K is computed with: the 99th percentile."""
        return self._warm.percentile(99) if len(self._warm) else self.planning

    def summary_ms(self) -> dict[str, float]:
        """Return p50, p95, p99 and max of the window in ms."""
        return self._warm.summary(1000.0)


@dataclass(frozen=True)
class Outstanding:
    """A request that waits for its answer: its id, the instant it was sent, why."""

    request_id: str
    sent: float
    cause: str


class Schedule:
    """Decides at every tick whether a request goes out; knows which answer is awaited."""

    def __init__(self, epoch: str, period_s: float):
        self._epoch, self._period = epoch, period_s
        self._n = 0
        self._last_sent: float | None = None
        self._pending_cause: str | None = None
        self.outstanding: Outstanding | None = None
        self.counts = {"requests": 0, "request_timeouts": 0, "requests_late": 0}
        self.causes: dict[str, int] = {}
        self._late_for: str | None = None

    def trigger(self, cause: str) -> None:
        """Ask for a plan as soon as no other request is in flight. The first cause that is waiting is kept."""
        if self._pending_cause is None:
            self._pending_cause = cause

    def due(self, now: float, k: int, threshold: float, left: float | None, timeout_s: float) -> str | None:
        """Return the cause of a request that must go out now, or None.

        ``k`` ticks between requests; with ``threshold`` > 0 a request instead when the fraction ``left`` of the plan
        (None: no plan) falls below it. A request unanswered for ``timeout_s`` is given up.
        """
        waiting = self.outstanding
        given_up = waiting is not None and now - waiting.sent >= timeout_s
        if given_up:
            self.counts["request_timeouts"] += 1
            self.outstanding = None
        since = math.inf if self._last_sent is None else now - self._last_sent
        cause = "timeout" if given_up else self._pending_cause
        if cause is None and threshold > 0.0:
            # The period is a floor here: a threshold that the plan never reaches must not ask at every tick.
            cause = "threshold" if since > 0.5 * self._period and (left is None or left < threshold) else None
        elif cause is None and since >= (k - 0.5) * self._period:
            cause = "k"
        if cause is None:
            return None
        if self.outstanding is not None:
            if cause in ("k", "threshold") and self._late_for != self.outstanding.request_id:
                self._late_for = self.outstanding.request_id
                self.counts["requests_late"] += 1
            return None
        return cause

    def send(self, now: float, cause: str) -> str:
        """Record that a request goes out now; return its id."""
        request_id = f"{self._epoch}:{self._n}"
        self._n += 1
        self.outstanding = Outstanding(request_id, now, cause)
        self._last_sent = now
        self._pending_cause = None
        self.counts["requests"] += 1
        self.causes[cause] = self.causes.get(cause, 0) + 1
        return request_id

    def answered(self, request_id: str) -> Outstanding | None:
        """Return the request that this id answers and close it; None when it is not the one in flight."""
        waiting = self.outstanding
        if waiting is None or waiting.request_id != request_id:
            return None
        self.outstanding = None
        return waiting

    def forget(self) -> None:
        """Give up the request in flight without a word, and ask again at the next tick."""
        self.outstanding = None
        self._last_sent = None
        self._pending_cause = None
