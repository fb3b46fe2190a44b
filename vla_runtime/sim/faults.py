"""The fault campaign: executor and watchdog on simulated time, thousands of faults, one after and upon another.

Every command is judged by :mod:`vla_runtime.sim.truth`, which knows what really happened. Everything follows from the
seed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.watchdog_states import State
from vla_runtime.sim.control_world import ControlWorld
from vla_runtime.sim.fault_kinds import KINDS
from vla_runtime.sim.truth import Switch

FAULTS_PER_WORLD = 25  # then another seed: other latencies, steps, phases, paths
OVERLAP = 0.25  # of the faults begin while the last one lasts
SETTLED_S = 5.0  # after that long without a fault the arm is on the path of the policy
IN_TIME_RAD = 0.005  # and so near to it, if chunks agree with the path; 20 ms late would be up to 0.03 rad
RECOVERY_S = 8.0  # all sound again: after this long at most the policy must have the arm back


@dataclass
class _Kind:
    """What is counted for one kind of fault."""

    faults: int = 0
    alone: int = 0  # began in NOMINAL with nothing else wrong
    fell: int = 0  # of those: the fallback took the arm while it lasted
    to_fallback_s: list[float] = field(default_factory=list)


@dataclass
class Campaign:
    """A running fault campaign.

    Args:
        limits: of the simulated arm's joints.
        seed: everything follows from it.
        kinds: which kinds of :data:`KINDS`; all by default.
    """

    limits: Limits
    seed: int = 0
    kinds: Sequence[str] = tuple(KINDS)

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"no kind of fault '{unknown[0]}'; there are: {', '.join(KINDS)}")
        self.faults = self.ticks = self.unfounded = self.worlds = self.commands = 0
        self.simulated_s = 0.0
        self.switches: list[Switch] = []
        self.violations: list[dict[str, Any]] = []
        self.states: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.away_rad: list[float] = []  # distance from the path at the end of each world
        self._kinds: dict[str, _Kind] = defaultdict(_Kind)

    def run(self, faults: int, progress: Callable[[int], None] | None = None) -> Campaign:
        """Throw ``faults`` faults; ``progress`` is told how many there have been after each world."""
        while self.faults < faults:
            self._world(min(FAULTS_PER_WORLD, faults - self.faults))
            if progress is not None:
                progress(self.faults)
        return self

    def _world(self, faults: int) -> None:
        rng = np.random.default_rng((self.seed, self.worlds))
        world = ControlWorld((self.seed, self.worlds), self.limits)
        self.worlds += 1
        history: list[tuple[float, str]] = []
        self._must_recover(world, "start")
        for _ in range(faults):
            name = self.kinds[int(rng.integers(len(self.kinds)))]
            history.append((round(world.now, 3), name))
            self._fault(world, name, rng)
        self._must_recover(world, "end")
        self._must_be_in_time(world)
        self._collect(world, history)

    def _fault(self, world: ControlWorld, name: str, rng: np.random.Generator) -> None:
        kind = self._kinds[name]
        self.faults += 1
        kind.faults += 1
        alone = world.state is State.NOMINAL and world.now >= world.sound_at
        begin, fallbacks = world.now, len(world.truth.switches)
        lasts = KINDS[name](world, rng)
        world.sound_at = max(world.sound_at, world.now + lasts)
        if rng.random() < OVERLAP:
            world.run(float(rng.uniform(0.0, lasts)))
            return
        world.run(lasts + 0.1)
        if alone:
            kind.alone += 1
            fell = world.truth.switches[fallbacks:]
            if fell:
                kind.fell += 1
                kind.to_fallback_s.append(fell[0].at - begin)
        if rng.random() < 0.7:
            world.run_until(lambda: world.state is State.NOMINAL, 2.0)
            world.run(float(rng.uniform(0.0, 0.4)))

    def _must_recover(self, world: ControlWorld, when: str) -> None:
        """All is sound: let operators let go, and the policy must get the arm back."""
        world.run(max(world.sound_at - world.now, 0.0) + 0.1)
        world.watchdog.release(world.now)
        world.watchdog.reset(world.now)
        if not world.run_until(lambda: world.state is State.NOMINAL, RECOVERY_S):
            text = f"{when}: still {world.state} after {RECOVERY_S} s: {world.watchdog.cause}"
            world.truth.checker.note(world.now, "recovery", text)

    def _must_be_in_time(self, world: ControlWorld) -> None:
        """All is sound: the arm must be where the path is *now*; where it was a period ago would be an old waypoint."""
        world.run(SETTLED_S)
        if world.state is not State.NOMINAL:
            world.truth.checker.note(world.now, "settled", f"{world.state}: {world.watchdog.cause}")
            return
        moving = ~self.limits.discrete
        away = np.abs(world.arm(world.now)[0] - world.path(np.array([world.now]))[0])[moving].max()
        if away > IN_TIME_RAD + 2.0 * world.policy.offset_rad:
            world.truth.checker.note(world.now, "elapsed", f"{away:.4f} rad away from the path")
        self.away_rad.append(float(away))

    def _collect(self, world: ControlWorld, history: list[tuple[float, str]]) -> None:
        truth, watchdog = world.truth, world.watchdog
        self.ticks += world.ticks
        self.simulated_s += world.now
        self.commands += truth.checker.commands
        self.unfounded += truth.unfounded
        self.switches.extend(truth.switches)
        self.refused.update(watchdog.refused)
        self.states.update(truth.states)
        for violation in truth.violations:
            recent = [f"{name} at {at}" for at, name in history if at <= violation.at][-3:]
            self.violations.append(
                {
                    "world": self.worlds - 1,
                    "at_s": round(violation.at, 4),
                    "rule": violation.rule,
                    "what": violation.text,
                    "after": recent,
                }
            )

    def report(self) -> dict[str, Any]:
        """Return the figures: plain numbers, ready for JSON."""
        return {
            "faults": self.faults,
            "kinds": sum(1 for kind in self._kinds.values() if kind.faults),
            "violations": len(self.violations),
            "switch_ms": _spread([switch.after_deadline_s for switch in self.switches]),
            "switches": len(self.switches),
            "switch_ms_by_silence": {
                stage: {"count": len(times), **_spread(times)} for stage, times in sorted(self._by_stage().items())
            },
            "unfounded_fallbacks": self.unfounded,
            "commands": self.commands,
            "ticks": self.ticks,
            "simulated_s": round(self.simulated_s, 2),
            "worlds": self.worlds,
            "seed": self.seed,
            "ticks_in_state": {str(state): count for state, count in sorted(self.states.items())},
            "refused_trajectories": dict(sorted(self.refused.items())),
            "by_kind": {
                name: {
                    "faults": kind.faults,
                    "alone": kind.alone,
                    "fell": kind.fell,
                    "fault_to_fallback_ms": _spread(kind.to_fallback_s),
                }
                for name, kind in sorted(self._kinds.items())
            },
            "first_violations": self.violations[:20],
        }

    def _by_stage(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for switch in self.switches:
            found[switch.stage].append(switch.after_deadline_s)
        return found


def _spread(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return p50, p99 and the maximum in ms; None of an empty list."""
    if not seconds:
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(seconds, [50, 99], method="higher")
    return {name: round(float(value) * 1e3, 2) for name, value in (("p50", p50), ("p99", p99), ("max", max(seconds)))}
