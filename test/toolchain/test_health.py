"""What `vla health` calls healthy."""

import pytest

from vla_runtime.control.watchdog_states import State
from vla_runtime.toolchain.health_command import HEALTHY, WAITING, judge


@pytest.mark.parametrize("state", [str(state) for state in State])
def test_every_state_of_the_watchdog_is_judged(state):
    healthy, text = judge(state, {"cause": "because", "in_command": "policy"})
    assert healthy == (state in ("NOMINAL", "COASTING", "HOLD", "TELEOP"))
    assert text.startswith(state)
    assert "because" in text


def test_waiting_may_be_called_healthy():
    assert judge("WARMUP", {}, waiting_is_ok=True)[0]
    assert not judge("FAULT", {}, waiting_is_ok=True)[0]


def test_the_states_are_the_watchdogs():
    assert set(HEALTHY + WAITING) < {str(state) for state in State}


def test_an_unknown_state_is_not_healthy():
    assert not judge("SPLENDID", {})[0]
