"""A policy that loads for a long time, and one that dies after it: no false alarm before, no late one after."""

import pytest

from vla_runtime.sim.watchdog_rig import PERIOD_S, WatchdogRig


@pytest.mark.parametrize("load_s", [8.0, 14.0])
def test_a_long_load_is_no_fault_and_a_death_after_it_is_noticed_in_time(load_s):
    rig = WatchdogRig()
    rig.heartbeat, rig.requests = "warming", False
    rig.watchdog.activate(rig.now)
    rig.run(load_s)
    assert rig.command.state == "WARMUP" and rig.command.trajectory is None
    assert "warming" in rig.command.cause
    assert not rig.watchdog.misses and not rig.watchdog.missed
    rig.heartbeat, rig.requests = "ready", True
    rig.run_until("NOMINAL")
    rig.run(0.5)
    rig.heartbeat, rig.answers = "", False
    deadline = rig.watchdog.settings.policy_deadline_s
    assert rig.run_until("FALLBACK") <= deadline + 2 * PERIOD_S + 1e-9
    assert rig.checker.violations == []
