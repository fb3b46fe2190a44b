"""The lifecycle base on a real node: refusals, exceptions, autostart, order of things."""

from dataclasses import dataclass

import pytest
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn as Result
from rclpy.parameter import Parameter as RosParameter
from std_msgs.msg import String

from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.errors import UserError
from vla_runtime.nodes import lifecycle
from vla_runtime.nodes.diagnostics import Level
from vla_runtime.nodes.lifecycle import ManagedNode, TransitionRefusedError
from vla_runtime.nodes.parameters import NodeParameters


@dataclass(frozen=True)
class Settings:
    autostart: bool
    depth: int


TABLE = Table(
    "bench",
    (Parameter("autostart", bool, True, live=False), Parameter("depth", int, 3, 1, 9)),
    Settings,
)


class Bench(ManagedNode):
    """Records its hooks; each can be made to fail."""

    def __init__(self):
        self.calls = []
        self.faults = {}
        super().__init__("bench", lambda node: NodeParameters(node, {"node": TABLE}, changed=node.reconsider))
        self.publisher = self.create_lifecycle_publisher(String, "command", 1)

    def _hook(self, name):
        self.calls.append((name, self.publisher.is_activated))
        if self.faults.get(name):
            raise self.faults[name]

    def setup(self):
        self._hook("setup")

    def start(self):
        self._hook("start")

    def halt(self):
        self._hook("halt")

    def teardown(self):
        self._hook("teardown")

    @property
    def names(self):
        return [name for name, _ in self.calls]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(lifecycle, "AUTOSTART_PERIOD_S", 0.1)


OFF = ("--ros-args", "-p", "autostart:=false")


def spin(node, condition=lambda: False, turns=40):
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    for _ in range(turns):
        executor.spin_once(timeout_sec=0.02)
        if condition():
            break
    executor.shutdown()


def test_through_all_states(lonely):
    node = lonely(Bench, *OFF)
    assert node.trigger_configure() == Result.SUCCESS
    assert node.trigger_activate() == Result.SUCCESS
    assert node.lifecycle_state == "active"
    assert node.trigger_deactivate() == Result.SUCCESS
    assert node.trigger_cleanup() == Result.SUCCESS
    assert node.lifecycle_state == "unconfigured"
    assert node.names == ["setup", "start", "halt", "teardown"]


def test_the_stop_can_still_be_published_while_halting(lonely):
    node = lonely(Bench, *OFF)
    node.trigger_configure()
    node.trigger_activate()
    node.trigger_deactivate()
    assert ("start", True) in node.calls
    assert ("halt", True) in node.calls
    assert not node.publisher.is_activated


def test_a_refusal_is_one_line_and_the_node_stays(lonely, capfd):
    node = lonely(Bench, *OFF)
    node.faults["setup"] = UserError("bundle /b: horizon is 10, the graph says 50")
    assert node.trigger_configure() == Result.FAILURE
    assert node.lifecycle_state == "unconfigured"
    log = capfd.readouterr().err
    assert "cannot configure: bundle /b: horizon is 10, the graph says 50" in log
    assert "Traceback" not in log
    assert "horizon" in node.refusal
    assert node.names == ["setup", "teardown"]
    node.faults.clear()
    assert node.trigger_configure() == Result.SUCCESS
    assert node.refusal == ""


@pytest.mark.parametrize("options", [(), OFF], ids=["autostart", "told"])
def test_what_should_have_refused_the_activation_undoes_it(lonely, options):
    node = lonely(Bench, *options)
    node.trigger_configure()
    node.trigger_activate()
    node.step_back(TransitionRefusedError("another publisher", retry=True))
    assert node.lifecycle_state == "inactive"
    assert node.refusal == "cannot activate: another publisher"
    assert node.names == ["setup", "start", "halt"]
    spin(node, lambda: node.lifecycle_state == "active")
    assert node.lifecycle_state == ("inactive" if options else "active")


def test_a_refused_activation_leaves_it_inactive_and_silent(lonely):
    node = lonely(Bench, *OFF)
    node.trigger_configure()
    node.faults["start"] = TransitionRefusedError("no picture yet from camera 'wrist'", retry=True)
    assert node.trigger_activate() == Result.FAILURE
    assert node.lifecycle_state == "inactive"
    assert not node.publisher.is_activated
    assert node.names == ["setup", "start", "halt"]


def test_an_exception_is_logged_with_its_traceback(lonely, capfd):
    node = lonely(Bench, *OFF)
    node.faults["setup"] = ZeroDivisionError("in the middle")
    assert node.trigger_configure() == Result.ERROR
    log = capfd.readouterr().err
    assert "Traceback" in log
    assert "ZeroDivisionError: in the middle" in log
    assert node.lifecycle_state == "unconfigured"
    assert node.names == ["setup", "halt", "teardown"]


@pytest.mark.parametrize("hook", ["start", "halt"])
def test_an_exception_later_on_stops_and_takes_down(lonely, hook, capfd):
    node = lonely(Bench, *OFF)
    node.trigger_configure()
    node.faults[hook] = RuntimeError("lost")
    node.trigger_activate()
    node.trigger_deactivate()
    assert node.lifecycle_state == "unconfigured"
    assert node.names[-1] == "teardown"
    assert "RuntimeError: lost" in capfd.readouterr().err


def test_parameters_are_checked_before_anything_is_set_up(lonely):
    node = lonely(Bench, *OFF, "-p", "depth:=99")
    assert node.trigger_configure() == Result.FAILURE
    assert "setup" not in node.names
    assert "depth = 99 is outside its range (1 to 9)" in node.refusal


def test_autostart(lonely):
    node = lonely(Bench)
    spin(node, lambda: node.lifecycle_state == "active")
    assert node.names == ["setup", "start"]


def test_autostart_tries_again_where_waiting_may_help(lonely):
    node = lonely(Bench)
    node.faults["start"] = TransitionRefusedError("no picture yet", retry=True)
    spin(node, lambda: node.names.count("start") == 2, turns=60)
    assert node.lifecycle_state == "inactive"
    node.faults.clear()
    spin(node, lambda: node.lifecycle_state == "active", turns=60)
    assert node.lifecycle_state == "active"


def test_autostart_does_not_insist_where_it_cannot_help(lonely):
    node = lonely(Bench)
    node.faults["setup"] = UserError("no such directory")
    spin(node, turns=25)
    assert node.names.count("setup") == 1
    assert node.lifecycle_state == "unconfigured"


def test_a_parameter_that_is_mended_lets_it_start(lonely):
    node = lonely(Bench, "--ros-args", "-p", "depth:=99")
    spin(node, lambda: node.refusal)
    assert node.lifecycle_state == "unconfigured"
    assert node.set_parameters([RosParameter("depth", value=4)])[0].successful
    spin(node, lambda: node.lifecycle_state == "active", turns=60)
    assert node.lifecycle_state == "active"


def test_what_an_operator_deactivated_stays_inactive(lonely):
    node = lonely(Bench)
    spin(node, lambda: node.lifecycle_state == "active")
    node.trigger_deactivate()
    spin(node, turns=25)
    assert node.lifecycle_state == "inactive"


def test_leaving_halts_and_takes_down(lonely):
    node = lonely(Bench, *OFF)
    node.trigger_configure()
    node.trigger_activate()
    node.leave()
    assert node.names == ["setup", "start", "halt", "teardown"]
    assert node.lifecycle_state == "finalized"


def test_diagnostics_say_why_it_does_not_run(lonely):
    node = lonely(Bench, *OFF)
    assert node._own_status().level == Level.WARN
    node.faults["setup"] = UserError("no such directory")
    node.trigger_configure()
    status = node._own_status()
    assert (status.level, status.message) == (Level.ERROR, "cannot configure: no such directory")
    assert status.to_msg("bench").name == "bench: lifecycle"
