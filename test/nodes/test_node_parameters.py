"""Tables as ROS parameters, on a real node."""

from dataclasses import dataclass

import pytest
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.nodes.parameters import NodeParameters, ParameterError


@dataclass(frozen=True)
class Deadlines:
    answer_s: float
    policy_s: float
    tries: int
    fallback: str
    poses: tuple
    socket: str


TABLE = Table(
    title="deadlines",
    parameters=(
        Parameter("answer_s", float, 0.25, min=0.05, max=2.0, unit="s", doc="late from here on"),
        Parameter("policy_s", float, 0.5, min=0.05, max=5.0, unit="s", doc="gone from here on"),
        Parameter("tries", int, 3, min=1, max=9, doc="how often"),
        Parameter("fallback", str, "stop", choices=("stop", "hold"), doc="what then"),
        Parameter("poses", list[float], (), doc="where to"),
        Parameter("socket", str, "a", doc="not live", live=False),
    ),
    build=Deadlines,
    checks=(
        lambda v: (
            None
            if v["answer_s"] < v["policy_s"]
            else f"answer_s = {v['answer_s']:g} must be below policy_s = {v['policy_s']:g}"
        ),
    ),
)


class Bench:
    def __init__(self, extra=lambda table, settings: None):
        self.node = Node("bench")
        self.active = False
        self.changes = 0
        self.parameters = NodeParameters(
            self.node, {"deadlines": TABLE}, active=lambda: self.active, extra=extra, changed=self._changed
        )

    def _changed(self):
        self.changes += 1

    def destroy_node(self):
        self.node.destroy_node()

    def set(self, **values):
        return self.node.set_parameters_atomically([RosParameter(k, value=v) for k, v in values.items()])

    @property
    def settings(self):
        return self.parameters["deadlines"]


def arguments(*pairs):
    return ["--ros-args", *[part for pair in pairs for part in ("-p", pair)]]


def test_defaults_are_declared_and_described(lonely):
    bench = lonely(Bench)
    assert bench.settings == Deadlines(0.25, 0.5, 3, "stop", (), "a")
    described = bench.node.describe_parameter("answer_s")
    assert described.description == "late from here on [s]"
    assert described.floating_point_range[0].to_value == 2.0
    assert "0.05 to 2 s" in described.additional_constraints
    assert "not while active" in bench.node.describe_parameter("socket").additional_constraints
    assert "stop, hold" in bench.node.describe_parameter("fallback").additional_constraints
    bench.parameters.check()


def test_overrides_are_taken(lonely):
    bench = lonely(Bench, *arguments("answer_s:=0.3", "tries:=5", "fallback:=hold", "poses:=[1.0, 2.0]"))
    assert bench.settings == Deadlines(0.3, 0.5, 5, "hold", (1.0, 2.0), "a")
    assert bench.node.get_parameter("tries").value == 5


def test_a_whole_number_is_a_number(lonely):
    bench = lonely(Bench, *arguments("policy_s:=2"))
    assert bench.settings.policy_s == 2.0
    assert bench.set(policy_s=1).successful
    assert bench.settings.policy_s == 1.0


def test_what_param_dump_writes_loads_again(lonely, tmp_path):
    """An empty list too, of which a file cannot say what it is a list of."""
    dumped = tmp_path / "bench.yaml"
    values = {"answer_s": 0.3, "policy_s": 0.6, "tries": 4, "fallback": "hold", "poses": [], "socket": "b"}
    lines = [f"    {name}: {value}" for name, value in values.items()]
    dumped.write_text("\n".join(["/bench:", "  ros__parameters:", *lines, "    use_sim_time: false", ""]))
    bench = lonely(Bench, "--ros-args", "--params-file", str(dumped))
    assert bench.settings == Deadlines(0.3, 0.6, 4, "hold", (), "b")
    bench.parameters.check()


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("answer_s:=99.0", r"answer_s = 99 is outside its range \(0.05 to 2 s\)"),
        ("answer_s:=soon", "answer_s must be a number, got 'soon'"),
        ("fallback:=stopp", "did you mean 'stop'"),
        ("tries:=2.5", "tries must be a whole number"),
        ("answer_s:=.nan", "answer_s must be finite"),
    ],
)
def test_a_wrong_override_is_named_and_mended_by_setting_it(lonely, override, text):
    bench = lonely(Bench, *arguments(override))
    assert bench.settings == Deadlines(0.25, 0.5, 3, "stop", (), "a")
    with pytest.raises(ParameterError, match=text):
        bench.parameters.check()
    name = override.partition(":")[0]
    assert bench.set(**{name: TABLE[name].default}).successful
    bench.parameters.check()


def test_overrides_that_do_not_go_together_are_mended_one_by_one(lonely):
    bench = lonely(Bench, *arguments("answer_s:=1.5", "policy_s:=0.1"))
    with pytest.raises(ParameterError, match="must be below"):
        bench.parameters.check()
    assert bench.set(answer_s=0.9).successful
    with pytest.raises(ParameterError, match="must be below"):
        bench.parameters.check()
    assert bench.set(policy_s=1.0).successful
    bench.parameters.check()
    assert (bench.settings.answer_s, bench.settings.policy_s) == (0.9, 1.0)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"answer_s": 9.0}, "out of range"),
        ({"answer_s": float("nan")}, "out of range"),
        ({"fallback": "jump"}, "is not one of: stop, hold"),
        ({"answer_s": 1.0}, "answer_s = 1 must be below policy_s = 0.5"),
        ({"answer_s": 0.3, "policy_s": 0.2}, "must be below"),
        ({"tries": "many"}, "Wrong parameter type"),
    ],
)
def test_a_change_is_refused_with_its_reason_and_nothing_changes(lonely, values, text):
    bench = lonely(Bench)
    before = bench.settings
    result = bench.set(**values)
    assert not result.successful
    assert text in result.reason
    assert bench.settings is before
    assert bench.changes == 0


def test_a_change_replaces_the_settings_as_a_whole(lonely):
    bench = lonely(Bench)
    before = bench.settings
    assert bench.set(answer_s=0.8, policy_s=1.6).successful
    assert before == Deadlines(0.25, 0.5, 3, "stop", (), "a")
    assert bench.settings == Deadlines(0.8, 1.6, 3, "stop", (), "a")
    assert bench.changes == 1


def test_what_is_not_live_is_refused_while_active(lonely):
    bench = lonely(Bench)
    bench.active = True
    result = bench.set(socket="b")
    assert not result.successful
    assert "deactivate it first" in result.reason
    assert bench.set(answer_s=0.3).successful
    bench.active = False
    assert bench.set(socket="b").successful


def test_a_rule_that_only_the_running_node_knows(lonely):
    def safe(table, settings):
        return f"tries = {settings.tries} is not safe now: 1 to 4" if settings.tries > 4 else None

    bench = lonely(lambda: Bench(safe))
    result = bench.set(tries=7)
    assert (result.successful, result.reason) == (False, "tries = 7 is not safe now: 1 to 4")
    assert bench.set(tries=4).successful


def test_a_refused_change_leaves_nothing_for_the_next(lonely):
    bench = lonely(Bench)
    bench.set(answer_s=1.9)
    assert bench.set(tries=4).successful
    assert bench.settings.answer_s == 0.25


def test_a_misspelt_override_is_pointed_at(lonely, capfd):
    lonely(Bench, *arguments("answer:=0.3"))
    assert "did you mean 'answer_s'?" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ("frobnicate:=3", "parameter 'frobnicate' is not known and has no effect\n"),
        ("stream_deadline_s:=0.1", ""),  # the watchdog's, in a file for all nodes
        ("use_sim_time:=false", ""),
        ("qos_overrides./scan.subscription.depth:=3", ""),
    ],
)
def test_an_override_that_means_nothing_here_is_named_unless_it_is_anothers(lonely, capfd, pair, text):
    lonely(Bench, *arguments(pair))
    told = capfd.readouterr().err
    assert text in told if text else "has no effect" not in told
