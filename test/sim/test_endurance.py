"""Long runs: what is counted adds up, and a leak is seen."""

import numpy as np
import pytest

from vla_runtime.control.watchdog_states import State
from vla_runtime.sim import endurance
from vla_runtime.sim.endurance import ALLOWED_GROWTH, Endurance, inconsistencies
from vla_runtime.sim.watchdog_rig import six_joints
from vla_runtime.toolchain.bench_faults import endured


@pytest.fixture(scope="module")
def run():
    return Endurance(six_joints(), seed=3, minute_s=10.0).run(3)


def test_minutes_pass_with_a_fault_in_each_and_all_adds_up(run):
    figures = run.report()
    assert figures["simulated_h"] == pytest.approx(30.0 / 3600.0, abs=1e-3)
    assert figures["faults"] == 3
    assert figures["ticks"] == pytest.approx(30.0 / 0.02, abs=2)
    assert figures["commands"] <= figures["ticks"]
    assert figures["violations"] == [] and figures["faulty_counters"] == []
    assert set(figures["memory_mib"]) == {"after_first_minute", "after_ten_minutes", "at_half", "at_end", "max"}
    assert 10.0 < figures["memory_mib"]["at_end"] < 4000.0


def test_counters_that_contradict_each_other_are_named(run):
    world = run.world
    assert inconsistencies(world) == []
    world.watchdog.passed[(State.NOMINAL, State.HOLD)] += 1
    world.executor._schedule.counts["requests"] += 1
    found = " ".join(inconsistencies(world))
    assert "HOLD was entered" in found and "NOMINAL was entered" in found and "requests, causes" in found
    world.watchdog.passed[(State.NOMINAL, State.HOLD)] -= 1
    world.executor._schedule.counts["requests"] -= 1


def test_a_leak_is_seen(monkeypatch):
    kept = []

    def leaking(world):
        kept.append(np.ones(2_000_000))  # 15 MiB a minute
        return []

    monkeypatch.setattr(endurance, "inconsistencies", leaking)
    figures = Endurance(six_joints(), minute_s=5.0).run(3).report()
    assert figures["growth"] > ALLOWED_GROWTH
    assert not endured(figures)
    assert endured(None) and endured({**figures, "growth": 0.01})
    assert not endured({**figures, "growth": 0.0, "violations": ["1.000 s: jump: ..."]})
