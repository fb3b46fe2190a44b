"""A refused number of any size leaves its message readable: 1e308 written out has 309 digits."""

from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.control.acceptance import Rules, accept
from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.deviation import Apart
from vla_runtime.control.gate import Gate
from vla_runtime.control.schedule import Outstanding
from vla_runtime.control.trajectory import Trajectory, at_rest
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.errors import brief
from vla_runtime.sim.command_checker import CommandChecker
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()
GATE = Gate(LIMITS, watchdog_settings())
REST = at_rest(1.0, LIMITS.joint_names, np.zeros(6))
HUGE = (1e308, -1e308, 1.7e200)


def with_value(what: str, row: int, value: float) -> Trajectory:
    values = getattr(REST, what).copy()
    values[row, 2] = value
    return replace(REST, **{what: values})


def plan(value: float, joint: int = 1) -> ActionChunk:
    positions = np.zeros((50, 6))
    positions[7:, joint] = value
    return ActionChunk(0.9, 0.02, LIMITS.joint_names, positions, "e:1", 1.0)


def gate_jump(value: float) -> str:
    return GATE.continuous(with_value("positions", 0, value), REST).text


def gate_speed_jump(value: float) -> str:
    return GATE.continuous(with_value("velocities", 0, value), REST).text


def gate_first(value: float) -> str:
    return GATE.near(with_value("positions", 0, value), np.zeros(6)).text


def gate_measured(value: float) -> str:
    return GATE.near(REST, np.full(6, value)).text


def gate_limits(value: float) -> str:
    return GATE.limits_kept(with_value("positions", 1, value)).text


def gate_speed(value: float) -> str:
    return GATE.limits_kept(with_value("velocities", 0, value)).text


def taken(value: float, rules: Rules, command=None) -> str:
    return str(accept(1.0, plan(value), Outstanding("e:1", 0.9, "k"), None, command, rules, LIMITS))


def plan_limits(value: float) -> str:
    return taken(value, Rules(2.0, 0.1, 0.02, 0.05, 3.0, 0.5))


def plan_speed(value: float) -> str:
    return taken(value, Rules(2.0, 0.1, 0.02, np.inf, 3.0, 0.5))


def plan_jump(value: float) -> str:
    return taken(0.0, Rules(2.0, 0.1, 0.02, 0.05, 3.0, 0.5), np.full(6, value))


def not_following(value: float) -> str:
    return str(Apart("elbow", 0.1, value))


def checked(value: float) -> str:
    checker = CommandChecker(LIMITS)
    checker.check(1.0, REST, due=False)
    checker.check(1.02, replace(with_value("positions", 0, value), start=1.02), due=True)
    assert checker.violations
    return max((violation.text for violation in checker.violations), key=len)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("told", [
    gate_jump, gate_speed_jump, gate_first, gate_measured, gate_limits, gate_speed, plan_limits, plan_speed, plan_jump,
    not_following, checked,
])  # fmt: skip
def test_a_refusal_stays_one_line(told, value):
    text = told(value)
    assert len(text) < 200 and max(map(len, text.split())) < 20
    assert "e+" in text or "inf" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-1.2, "-1.2"), (3.14159265, "3.14159"), (57.3, "57.3"), (1e308, "1e+308"), (np.nan, "nan")],
)
def test_a_number_has_six_digits(value, text):
    assert brief(value) == brief(np.float64(value)) == text
