import math
from dataclasses import dataclass

import pytest

from vla_runtime.control.executor_settings import EXECUTOR_TABLE, ExecutorSettings, executor_settings
from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.control.trajectory import MIN_SPACING_S
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE


@dataclass(frozen=True)
class Settings:
    rate: float
    count: int
    name: str
    on: bool
    joints: tuple


TABLE = Table(
    "demo",
    (
        Parameter("rate", float, 1.0, 0.1, 5.0, "Hz", "How often."),
        Parameter("count", int, 3, 1, doc="How many."),
        Parameter("name", str, "cut", choices=("cut", "fade"), doc="Which."),
        Parameter("on", bool, True, live=False, doc="Whether."),
        Parameter("joints", list[str], (), doc="Whose."),
    ),
    Settings,
    (lambda v: "rate times count must be at most 10" if v["rate"] * v["count"] > 10 else None,),
)


def test_defaults_and_values_become_settings():
    assert TABLE.validate({}) == Settings(1.0, 3, "cut", True, ())
    assert TABLE.validate({"rate": 2, "joints": ["a", "b"]}) == Settings(2.0, 3, "cut", True, ("a", "b"))
    assert isinstance(TABLE.validate({"rate": 2}).rate, float)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"rate": 7.0}, "rate = 7 is outside its range (0.1 to 5 Hz)"),
        ({"rate": math.nan}, "rate must be finite, got nan"),
        ({"rate": "fast"}, "rate must be a number, got 'fast'"),
        ({"rate": True}, "rate must be a number, got True"),
        ({"count": 0}, "count = 0 is outside its range (at least 1)"),
        ({"count": 2.5}, "count must be a whole number, got 2.5"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"name": "fad"}, "name = 'fad' is not one of: cut, fade; did you mean 'fade'?"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"joints": "abc"}, "joints must be a list, got 'abc'"),
        ({"joints": ["a", 3]}, "joints[1] must be a text, got 3"),
        ({"cuont": 3}, "no parameter 'cuont'; did you mean 'count'?"),
        ({"rate": 5.0}, "rate times count must be at most 10"),
    ],
)
def test_every_wrong_value_has_its_reason(values, reason):
    assert TABLE.validate(values) == [reason]
    with pytest.raises(ValueError, match="demo: "):
        TABLE.load(values)


def test_all_reasons_are_given_at_once_and_rules_between_values_come_after():
    assert len(TABLE.validate({"rate": 50.0, "count": -1, "zzz": 0})) == 3


def test_what_is_not_live_is_refused_while_active():
    assert "on cannot be changed while the node is active" in TABLE.change({"on": True}, {"on": False}, active=True)[0]
    assert TABLE.change({"on": True}, {"on": False}, active=False).on is False
    assert TABLE.change({"on": True}, {"on": True, "rate": 2.0}, active=True).rate == 2.0
    assert TABLE.change({"on": True}, {"rate": 20.0}, active=True) == ["rate = 20 is outside its range (0.1 to 5 Hz)"]


def test_a_table_cannot_contradict_itself():
    with pytest.raises(ValueError, match="default"):
        Parameter("rate", float, 9.0, 0.0, 5.0)
    with pytest.raises(TypeError, match="cannot be of type"):
        Parameter("rate", dict, {})
    with pytest.raises(ValueError, match="twice"):
        Table("t", (Parameter("a", int, 1), Parameter("a", int, 2)), dict)


def test_the_documentation_has_every_parameter():
    text = TABLE.markdown()
    assert "| `rate` | double | 1.0 | 0.1 to 5 Hz | yes | How often. |" in text
    assert "| `on` | bool | True |  | no | Whether. |" in text
    assert "| `joints` | string[] |" in text


def test_the_executors_table_and_its_settings_have_the_same_names():
    assert [p.name for p in EXECUTOR_TABLE.parameters] == list(ExecutorSettings.__dataclass_fields__)
    assert all(p.doc for p in EXECUTOR_TABLE.parameters)
    assert executor_settings() == EXECUTOR_TABLE.validate(EXECUTOR_TABLE.defaults())


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"window_s": 0.03}, "window_s = 0.03 must be at least two control periods"),
        ({"max_plan_age_s": 0.05, "max_observation_lag_s": 0.1}, "max_plan_age_s = 0.05 must exceed"),
        ({"blend": "xfade"}, "crossfade"),
        ({"k": 0}, "k = 0"),
    ],
)
def test_the_executors_rules(values, reason):
    with pytest.raises(ValueError, match=reason):
        executor_settings(**values)


def test_the_takeover_time_goes_with_the_blend():
    times = {blend: executor_settings(blend=blend).takeover_s for blend in ("cut", "crossfade", "rtc", "ensemble")}
    assert times == {"cut": 0.0, "crossfade": 0.2, "rtc": 0.08, "ensemble": 0.2}


@pytest.mark.parametrize("table", [EXECUTOR_TABLE, WATCHDOG_TABLE])
def test_a_control_period_is_never_shorter_than_two_points_may_be_apart(table):
    assert table["period_s"].min >= MIN_SPACING_S
    assert table["period_s"].check(0.5 * MIN_SPACING_S)[1] is not None
