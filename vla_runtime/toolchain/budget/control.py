"""What a latency means to a control loop: delay in ticks, which K are safe, idle time, age, and whether it holds.

The rules are those of docs/architecture.md: one request in flight; K control ticks from request to request; a plan of
H ticks belongs to the instant of its observation, and what has elapsed is dropped. Asynchronously, the answer to a
request is in command from tick d on (d: delay of the slow branch), and must last until the next answer comes:
d <= K <= H - d. Delay, horizon and range are computed by the functions that the executor uses.
"""

from dataclasses import dataclass

from vla_runtime.control import schedule
from vla_runtime.control.schedule import KRange
from vla_runtime.toolchain.budget.errors import require


def delay_ticks(latency_ms: float, control_hz: float) -> int:
    """Return how many control ticks pass until an answer is in command: 97 ms at 50 Hz are 5. At least one.

    Raises:
        ValueError: a negative latency or a rate that is not positive; the text quotes it.
    """
    require(0 <= latency_ms < float("inf"), f"the latency must be a finite time of at least 0 ms, not {latency_ms!r}")
    require(0 < control_hz < float("inf"), f"the control rate must be above 0 Hz, not {control_hz!r}")
    return schedule.delay_ticks(latency_ms / 1e3, 1 / control_hz)


def horizon_ticks(horizon: int, step_s: float, control_hz: float) -> int:
    """Return how many whole control ticks the first and the last of ``horizon`` actions lie apart.

    ``step_s``: seconds between two actions. The last one is a place to be at, not a motion of its own: 50 actions of
    20 ms are 49 ticks at 50 Hz.
    """
    require(horizon >= 1, f"the horizon must be at least 1 action, not {horizon!r}")
    require(step_s > 0, f"the time between two actions must be above 0 s, not {step_s!r}")
    require(control_hz > 0, f"the control rate must be above 0 Hz, not {control_hz!r}")
    return schedule.horizon_ticks(horizon, step_s, 1 / control_hz)


@dataclass(frozen=True)
class ControlBudget:
    """A latency against a control loop. Ticks are control ticks.

    Attributes:
        mean_ms, slow_ms: latency on average and of the slow branch (with reasoning, with all steps).
        horizon_ticks: H. Asynchronously from a chunk's first action to its last; in stop and go the arm goes to the
            first action, too, so H is one action longer.
        delay_ticks, mean_delay_ticks: the latencies in ticks; the first one is d.
        k_min, k_max: the safe range of K, empty (k_min > k_max) if the chunk is too short for the latency. Stop and go:
            1 to H, nothing can run dry while the arm waits.
        k: the K that the rest is computed for.
        idle_ms: in each cycle of requests, how long no plan is valid on the slow branch.
        idle_share: the same as a share of the cycle.
        oldest_ms: age of the observation behind the oldest action that is executed, at its end (0: none is).
        plans_per_s: new plans a second. effective_hz: executed waypoints a second.
        deadline_ms: by when an answer must be there: the one given, or the end of the running plan.
        holds_on_mean, holds_on_slow: whether it is. The second decides.
    """

    control_hz: float
    horizon_ticks: int
    mean_ms: float
    slow_ms: float
    delay_ticks: int
    mean_delay_ticks: int
    k_min: int
    k_max: int
    k: int
    asynchronous: bool
    idle_ms: float
    idle_share: float
    oldest_ms: float
    plans_per_s: float
    effective_hz: float
    deadline_ms: float
    holds_on_mean: bool
    holds_on_slow: bool

    @property
    def safe(self) -> bool:
        """Whether K is in its range on the slow branch; asynchronously the stream of commands then never stops."""
        return self.k_min <= self.k <= self.k_max

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        d, horizon = self.delay_ticks, self.horizon_ticks
        if self.asynchronous and d >= horizon:
            return f"no K is safe: a plan lasts {horizon} ticks and comes after {d}, so it is over before it arrives"
        if self.k_min > self.k_max:
            return (f"no K is safe: a plan lasts {horizon} ticks, and bridging a delay of {d} twice takes {2 * d}; "
                    f"the arm stands still for {self.idle_ms:.0f} ms in every cycle")  # fmt: skip
        if not self.safe:
            if not self.asynchronous:
                return f"K = {self.k} is outside 1 to {horizon} ticks, the length of a plan"
            return f"K = {self.k} is outside {self.k_min} to {self.k_max} ticks (d <= K <= H - d)"
        if not self.holds_on_slow:
            return f"the slow branch ({self.slow_ms:.0f} ms) misses its deadline of {self.deadline_ms:.0f} ms"
        if not self.asynchronous:
            return f"stop and go: the arm stands still for {self.idle_ms:.0f} ms after every {self.k} ticks"
        return f"K = {self.k} is safe (range {self.k_min} to {self.k_max}), also on the slow branch"


def control_budget(
    mean_ms: float,
    slow_ms: float | None = None,
    *,
    horizon: int,
    step_s: float,
    control_hz: float = 50.0,
    k: int | None = None,
    deadline_ms: float | None = None,
    asynchronous: bool = True,
) -> ControlBudget:
    """Return what a latency means to a loop at ``control_hz``.

    Args:
        mean_ms: latency on average; ``slow_ms``: of the slow branch, the same if not given.
        horizon, step_s: actions in a chunk and seconds between them (the policy's, not the loop's).
        k: control ticks between requests; if not given the smallest safe one, d, or the whole chunk in stop and go.
        deadline_ms: the answer's deadline; the end of the running plan, (H - K) ticks, if not given or later than that.
        asynchronous: whether the arm moves while the policy computes.

    Raises:
        ValueError: a number is out of its range, or the slow branch is faster than the mean; the text quotes it.
    """
    slow_ms = mean_ms if slow_ms is None else slow_ms
    require(
        slow_ms >= mean_ms - 1e-9, f"the slow branch ({slow_ms!r} ms) cannot be faster than the mean ({mean_ms!r} ms)"
    )
    d, mean_d = delay_ticks(slow_ms, control_hz), delay_ticks(mean_ms, control_hz)
    between = horizon_ticks(horizon, step_s, control_hz)
    whole = horizon_ticks(horizon + 1, step_s, control_hz)
    require(whole >= 1, f"a chunk of {horizon} x {step_s} s is shorter than one tick at {control_hz} Hz")
    ticks = between if asynchronous else whole
    safe = schedule.k_range(slow_ms / 1e3, horizon, step_s, 1 / control_hz) if asynchronous else KRange(1, ticks)
    if k is None:
        k = d if asynchronous else ticks
    require(k >= 1, f"K must be at least 1 tick, not {k!r}")
    require(deadline_ms is None or deadline_ms > 0, f"the deadline must be above 0 ms, not {deadline_ms!r}")
    tick_ms = 1e3 / control_hz
    if asynchronous:
        cycle = max(k, d)  # one request in flight: the next one cannot leave before the answer is there
        oldest = min(cycle + d, ticks) if d < ticks else 0
        idle = min(cycle, max(0, cycle + d - ticks))
    else:
        oldest = d + min(k, ticks)
        idle = d + max(0, k - ticks)
        cycle = k + d
    # The running plan covers ticks up to H after its observation; the next one is asked for at tick ``cycle`` of it.
    # Stop and go: the arm waits as long as it takes, so only a given deadline can be missed.
    until_dry_ms = max(0, ticks - cycle) * tick_ms if asynchronous else float("inf")
    limit_ms = min(until_dry_ms, float("inf") if deadline_ms is None else deadline_ms)
    share = idle / cycle if cycle else 0.0
    return ControlBudget(
        control_hz=control_hz,
        horizon_ticks=ticks,
        mean_ms=mean_ms,
        slow_ms=slow_ms,
        delay_ticks=d,
        mean_delay_ticks=mean_d,
        k_min=safe.low,
        k_max=safe.high,
        k=k,
        asynchronous=asynchronous,
        idle_ms=idle * tick_ms,
        idle_share=share,
        oldest_ms=oldest * tick_ms,
        plans_per_s=control_hz / cycle,
        effective_hz=control_hz * (1 - share),
        deadline_ms=limit_ms,
        holds_on_mean=mean_ms <= limit_ms + 1e-9,
        holds_on_slow=slow_ms <= limit_ms + 1e-9,
    )
