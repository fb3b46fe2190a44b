"""Hours of simulated time in one process, a fault now and then: memory must not grow, counters must add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.watchdog_states import State
from vla_runtime.sim.control_world import ControlWorld
from vla_runtime.sim.fault_kinds import KINDS

MINUTE_S = 60.0
ALLOWED_GROWTH = 0.02  # of the process's memory, after the first simulated minute


class Endurance:
    """Executor, watchdog and a light policy, minute after simulated minute.

    Args:
        limits: of the simulated arm's joints.
        seed: everything follows from it.
        minute_s: how long a minute is; tests have no time for whole ones.
    """

    def __init__(self, limits: Limits, seed: int = 0, minute_s: float = MINUTE_S) -> None:
        self._minute_s = minute_s
        self.world = ControlWorld((seed, 0), limits)
        self._rng = np.random.default_rng((seed, 1))
        self.memory_mib: list[float] = []
        self.faults: Counter[str] = Counter()
        self.faulty_counters: list[str] = []

    def run(self, minutes: int, progress: Callable[[int], None] | None = None) -> Endurance:
        """Let ``minutes`` pass, one fault of a random kind in each; ``progress`` is told after each."""
        for minute in range(minutes):
            name = str(self._rng.choice(sorted(KINDS)))
            self.faults[name] += 1
            world, end = self.world, self.world.now + self._minute_s
            lasts = KINDS[name](world, self._rng)
            world.run(lasts + 0.1)
            world.watchdog.release(world.now)
            world.watchdog.reset(world.now)
            world.run(end - world.now)
            if world.state is not State.NOMINAL:
                text = f"still {world.state} at the end of the minute of a {name}: {world.watchdog.cause}"
                world.truth.checker.note(world.now, "recovery", text)
            self.faulty_counters += [f"minute {minute}: {text}" for text in inconsistencies(world)]
            self.memory_mib.append(resident_mib())
            if progress is not None:
                progress(minute + 1)
        return self

    @property
    def growth(self) -> float:
        """By what share of the memory after the first minute the process had grown at most, later on."""
        first, *later = self.memory_mib
        return max(later, default=first) / first - 1.0

    def report(self) -> dict[str, Any]:
        """Return the figures: plain numbers, ready for JSON."""
        memory, world = self.memory_mib, self.world
        return {
            "simulated_h": round(world.now / 3600.0, 3),
            "ticks": world.ticks,
            "commands": world.truth.checker.commands,
            "faults": sum(self.faults.values()),
            "violations": [f"{v.at:.3f} s: {v.rule}: {v.text}" for v in world.truth.violations[:20]],
            "faulty_counters": self.faulty_counters[:20],
            "memory_mib": {
                "after_first_minute": round(memory[0], 2),
                "after_ten_minutes": round(memory[min(9, len(memory) - 1)], 2),
                "at_half": round(memory[len(memory) // 2], 2),
                "at_end": round(memory[-1], 2),
                "max": round(max(memory), 2),
            },
            "growth": round(self.growth, 4),
        }


def inconsistencies(world: ControlWorld) -> list[str]:
    """Name the counters of executor and watchdog that contradict each other, or the world's own count."""
    found = []
    executor, passed = world.executor.snapshot(), world.watchdog.passed
    if executor["requests"] != sum(executor["request_causes"].values()):
        found.append(f"executor: {executor['requests']} requests, causes {executor['request_causes']}")
    if executor["refused_total"] != sum(executor["refused"].values()):
        found.append(f"executor: {executor['refused_total']} refused, reasons {executor['refused']}")
    if executor["accepted"] > executor["requests"] or executor["planned"] > executor["ticks"]:
        found.append(f"executor: more answers than requests, or plans than ticks: {executor}")
    entered, left = Counter(), Counter()
    for (source, target), times in passed.items():
        left[source] += times
        entered[target] += times
    for state in State:
        # Whatever was entered was left again, but for where it began and where it is.
        if entered[state] - left[state] != (state is world.state) - (state is State.INACTIVE):
            found.append(f"watchdog: {state} was entered {entered[state]} and left {left[state]} times")
    if sum(world.truth.states.values()) != world.ticks:
        found.append(f"watchdog: {sum(world.truth.states.values())} decisions in {world.ticks} ticks")
    return found


def resident_mib() -> float:
    """Return this process's resident memory, MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024.0
    raise OSError("/proc/self/status has no VmRSS")
