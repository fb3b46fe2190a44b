"""Timing of many short calls on a machine that does other things too."""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from statistics import median

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Rounds over all calls: as many as fit in ``seconds``, at least ``least`` and at most ``most``.

    ``cpu_clock``: CPU seconds of the calling thread; None where the work is not done by it alone.
    """

    seconds: float = 0.4
    least: int = 5
    most: int = 30
    clock: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] | None = time.thread_time


@dataclass(frozen=True)
class Timings:
    """What each call took, and what other processes took meanwhile.

    Attributes:
        seconds: of each call: its median CPU time (without a CPU clock: its mean on the wall).
        trace: (CPU seconds, wall seconds) of every call that was timed, in order; empty without a CPU clock.
    """

    seconds: dict[object, float]
    trace: tuple[tuple[float, float], ...] = ()

    def stretch(self, duration_s: float) -> float:
        """Return how much longer than its CPU time something of ``duration_s`` takes, in the median.

        A time slice that another process takes is longer than most calls: a short call is hit rarely but hard, a long
        stage often. So the trace is cut into windows that are as long as the stage, and their median counts.
        """
        ratios, cpu, wall = [], 0.0, 0.0
        for cpu_s, wall_s in self.trace:
            cpu, wall = cpu + cpu_s, wall + wall_s
            if cpu >= duration_s:
                ratios.append(wall / cpu if cpu > 0 else 1.0)
                cpu = wall = 0.0
        if len(ratios) < 3:  # too short a trace for windows: all of it is one
            cpu, wall = (sum(part) for part in zip(*self.trace)) if self.trace else (0.0, 0.0)
            ratios = [wall / cpu if cpu > 0 else 1.0]
        return max(1.0, median(ratios))


def timed(runs: dict[object, Run], timing: Timing, warm: Container[object] = ()) -> Timings:
    """Return the duration of each call, taken in rounds over all of them.

    A round comes to every call with cold caches, and a second run right after it finds them warm. Within a stage an
    operator finds a part of what it needs, so the mean of the two counts; of those with a key in ``warm``, the second.
    """
    for run in runs.values():
        run()
    spent: dict[object, list[float]] = {key: [] for key in runs}
    trace: list[tuple[float, float]] = []
    cpu_clock = timing.cpu_clock or timing.clock
    started = timing.clock()
    rounds = 0
    while rounds < timing.least or (rounds < timing.most and timing.clock() - started < timing.seconds):
        for key, run in runs.items():
            pair = [_once(run, timing.clock, cpu_clock) for _ in range(2)]
            trace += pair
            spent[key].append(pair[1][0] if key in warm else (pair[0][0] + pair[1][0]) / 2)
        rounds += 1
    if timing.cpu_clock is None:
        return Timings({key: sum(values) / rounds for key, values in spent.items()})
    return Timings({key: median(values) for key, values in spent.items()}, tuple(trace))


def _once(run: Run, clock: Callable[[], float], cpu_clock: Callable[[], float]) -> tuple[float, float]:
    """Return (CPU seconds, wall seconds) of one call."""
    before, cpu_before = clock(), cpu_clock()
    run()
    cpu_s = cpu_clock() - cpu_before
    return cpu_s, clock() - before
