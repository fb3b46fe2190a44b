"""Each kind of fault, once, in real processes over real DDS, with the demo's policy driving the simulated arm."""

import importlib.util

import pytest

from vla_runtime.paths import share

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="the simulated arm needs MuJoCo"),
    pytest.mark.timeout(600),
]


def test_every_kind_of_fault_is_caught_in_time(tmp_path):
    from vla_runtime.toolchain.process_faults import KINDS, run_campaign

    bundle = share("bundles", "demo")
    told = []
    result = run_campaign(len(KINDS), bundle, 1, tmp_path, lambda kind, strike: told.append((kind, strike)))
    assert result["violations"] == [], result
    assert set(result["kinds"]) == set(KINDS) == {kind for kind, _ in told}


def test_arm_rests_by_the_last_message_alone_when_the_watchdog_is_killed(tmp_path):
    from vla_runtime.toolchain.process_faults import kill_watchdog

    figures = kill_watchdog(share("bundles", "demo"), tmp_path, times=1)
    assert figures["violations"] == [], figures
