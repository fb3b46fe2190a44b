"""The three nodes as processes, with a bundle that moves the arm: the stream, and every fault that can be struck.

One set of processes for all tests, which run in order; each leaves the arm with the policy again. Arrivals are taken
by an observer of real-time priority, at DDS: the bounds are the promised ones.
"""

import contextlib
import json
import os
import signal
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import TrajectoryWriter
from vla_runtime.nodes.qos import LATCHED
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.nodes.transport import RANGE, choose_udp
from vla_runtime.toolchain.demo.conductor import glide
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

# Longer than the defaults: on a machine that is busy with other things an answer may take half a second.
DEADLINES = {
    "answer_deadline_s": 0.25,
    "policy_deadline_s": 1.5,
    "stream_deadline_s": 0.04,
    "joint_state_deadline_s": 0.1,
}
TWO_PERIODS_S = 0.04
TOPICS = "['joint_trajectory','planned_trajectory','plan_request','action_chunk']"
PATIENCE_S = 40.0
KINDS = {
    float: (ParameterType.PARAMETER_DOUBLE, "double_value"),
    int: (ParameterType.PARAMETER_INTEGER, "integer_value"),
    str: (ParameterType.PARAMETER_STRING, "string_value"),
}
LIMITS = load_robot("so101_sim").limits


def parameters(**values):
    return ["--ros-args", *(part for name, value in values.items() for part in ("-p", f"{name}:={value}"))]


class Stack:
    """The processes, and what they say."""

    def __init__(self, spawn, ros, folder):
        self.ros, self._spawn = ros, spawn
        self.log = folder / "arrivals.jsonl"
        bundle = write_tiny_bundle(folder / "bundle")
        self.commands = {
            "robot": ("vla_runtime.sim.robot_node", parameters(cameras="false", realtime_priority=40)),
            "cameras": ("vla_runtime.sim.pattern_cameras", []),
            "arrivals": ("vla_runtime.sim.arrivals", parameters(topics=TOPICS, out=self.log)),
            "watchdog": ("vla_runtime.nodes.watchdog_node", parameters(robot="so101_sim", **DEADLINES)),
            "executor": ("vla_runtime.nodes.executor_node", parameters(robot="so101_sim")),
            "policy": ("vla_runtime.sim.faulty_policy", parameters(
                bundle=bundle, robot="so101_sim", max_input_age_s=1.0, frame_wait_s=0.5)),
        }  # fmt: skip
        self.processes = {}
        self.states = ros.latched(DiagnosticStatus, "watchdog/state")
        self.executor_states = ros.latched(DiagnosticStatus, "executor/state")
        self.diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
        self.joints = ros.listen(JointState, "joint_states")
        self.controller = ros.listen(String, "sim/controller")
        for name in self.commands:
            self.start(name)

    def start(self, name):
        module, arguments = self.commands[name]
        environment = {RANGE: os.environ[RANGE]}
        if name == "robot":  # as a real controller's host: in real time, and not stopped by other processes' locks
            choose_udp(environment)
        self.processes[name] = self._spawn(module, *arguments, **environment)

    def strike(self, name, number):
        """Send a signal; returns the steady seconds just before."""
        at = time.monotonic()
        self.processes[name].signal(number)
        return at

    @contextlib.contextmanager
    def fault(self, kind):
        """The policy behaves in this way meanwhile."""
        publisher = self.ros.publisher(String, "sim/fault", LATCHED)
        publisher.publish(String(data=json.dumps({"policy": kind})))
        try:
            yield
        finally:
            publisher.publish(String(data=json.dumps({"policy": "none"})))
            time.sleep(0.2)  # until it has been heard
            self.ros.node.destroy_publisher(publisher)

    def state(self):
        return self.states[-1][1].message if self.states else ""

    def until(self, *states):
        self.ros.wait(lambda: self.state() in states, PATIENCE_S, f"{states}; the state is {self.state()}")
        return self.states[-1][1]

    def until_nominal(self):
        """Until the policy has the arm and has had it for a moment."""

        def steady():
            return self.state() == "NOMINAL" and time.monotonic() - self.states[-1][0] < 0.7 and len(self.arrived(
                "joint_trajectory", time.monotonic() - 0.3, policy=True)) > 10  # fmt: skip

        self.ros.wait(steady, PATIENCE_S, f"NOMINAL; the state is {self.state()}, {self.cause()}")

    def cause(self):
        return {pair.key: pair.value for pair in self.states[-1][1].values} if self.states else {}

    def figures(self, states):
        return {pair.key: pair.value for pair in states[-1][1].values}

    def arrived(self, topic, since, policy=None):
        """What arrived on a topic since then; of the policy's plans (True), of others (False), or both (None)."""
        records = []
        with self.log.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    record = json.loads(line)
                    if record["topic"] == f"/{topic}" and record["at"] > since:
                        records.append(record)
        return [r for r in records if policy is None or (":" in r["id"]) == policy]

    def first_fallback(self, since):
        self.ros.wait(lambda: self.arrived("joint_trajectory", since, policy=False), PATIENCE_S, "a fallback command")
        return self.arrived("joint_trajectory", since, policy=False)[0]["at"]

    def task(self, name):
        """The values of a task as /diagnostics had them last."""

        def found():
            return [s for _, array in self.diagnostics[-20:] for s in array.status if s.name == name]

        self.ros.wait(found, 10.0, name)
        return {pair.key: pair.value for pair in found()[-1].values}

    def rejected(self):
        return json.loads(self.controller[-1][1].data)["rejected_messages"]

    def set(self, node, **values):
        """Set parameters one by one; returns the results."""
        request = SetParameters.Request()
        for name, value in values.items():
            kind, field = KINDS[type(value)]
            request.parameters.append(Parameter(name=name, value=ParameterValue(type=kind, **{field: value})))
        return self.ros.call(SetParameters, f"{node}/set_parameters", request).results


@pytest.fixture(scope="module")
def stack(shared_spawn, shared_ros, tmp_path_factory):
    made = Stack(shared_spawn, shared_ros, tmp_path_factory.mktemp("stack"))
    made.until("NOMINAL")
    return made


@pytest.fixture(autouse=True)
def with_the_policy(stack):
    stack.until_nominal()


def test_the_stream_is_safe_at_every_message(stack):
    begin = time.monotonic()
    stack.ros.wait(lambda: time.monotonic() > begin + 3.0, 10.0)
    stream = stack.arrived("joint_trajectory", begin)
    assert len(stream) > 75
    assert all(record["rest"] and record["finite"] for record in stream)
    for earlier, later in zip(stream, stream[1:]):
        dt = (later["stamp_ns"] - earlier["stamp_ns"]) / 1e9
        assert dt > 0
        for q0, q1, limit in zip(earlier["q"], later["q"], LIMITS.velocity):
            assert abs(q1 - q0) <= limit * dt * 1.02 + 1e-6
    assert stack.rejected() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_dead_executor(stack, number):
    at = stack.strike("executor", number)
    assert stack.first_fallback(at) - at <= DEADLINES["stream_deadline_s"] + TWO_PERIODS_S
    assert "no valid planned trajectory" in stack.figures([(0, stack.until("FALLBACK"))])["cause"]
    come_back(stack, "executor", number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_dead_policy(stack, number):
    at = stack.strike("policy", number)
    assert stack.first_fallback(at) - at <= DEADLINES["policy_deadline_s"] + TWO_PERIODS_S
    stack.until("FALLBACK")
    come_back(stack, "policy", number)


def come_back(stack, name, number):
    if number == signal.SIGSTOP:
        stack.processes[name].signal(signal.SIGCONT)
    else:
        stack.processes[name].wait(5.0)
        stack.start(name)
    stack.until("NOMINAL", "COASTING")


def test_joint_states_that_stop(stack):
    at = stack.strike("robot", signal.SIGSTOP)
    try:
        assert stack.first_fallback(at) - at <= DEADLINES["joint_state_deadline_s"] + TWO_PERIODS_S
        assert "no joint state" in stack.figures([(0, stack.until("FALLBACK"))])["cause"]
    finally:
        stack.processes["robot"].signal(signal.SIGCONT)


def test_a_frozen_camera(stack):
    begin = time.monotonic()
    assert all(result.successful for result in stack.set("pattern_cameras", frozen="front"))
    first = stack.first_fallback(begin)
    since = begin - 0.5
    answered = {record["id"] for record in stack.arrived("action_chunk", since)}
    unanswered = [r["at"] for r in stack.arrived("plan_request", since) if r["id"] not in answered]
    assert first - unanswered[0] <= DEADLINES["policy_deadline_s"] + TWO_PERIODS_S
    assert all(result.successful for result in stack.set("pattern_cameras", frozen=""))


def test_a_policy_that_answers_nan(stack):
    begin = time.monotonic()
    with stack.fault("nan"):
        first = stack.first_fallback(begin)
        planned = [record["at"] for record in stack.arrived("planned_trajectory", begin) if record["at"] < first]
        assert first - planned[-1] <= DEADLINES["stream_deadline_s"] + TWO_PERIODS_S
        stack.ros.wait(
            lambda: int(stack.figures(stack.executor_states).get("refused.not_finite", 0)) > 0, 5.0, "a refusal"
        )
    assert all(record["finite"] for record in stack.arrived("joint_trajectory", begin))


def test_a_policy_that_is_late(stack):
    seen = len(stack.states)
    with stack.fault("slow"):
        stack.ros.wait(lambda: "COASTING" in [m.message for _, m in stack.states[seen:]], PATIENCE_S, "COASTING")
    status = next(m for _, m in stack.states[seen:] if m.message == "COASTING")
    assert "unanswered for" in stack.figures([(0, status)])["cause"]


def test_an_engine_that_raises(stack):
    begin = time.monotonic()
    with stack.fault("raise"):
        stack.first_fallback(begin)
        assert "the engine failed" in stack.figures([(0, stack.until("FALLBACK"))])["cause"]
    assert "Traceback" in stack.processes["policy"].log()
    if not stack.processes["policy"].alive:
        stack.start("policy")


def test_hold_and_release(stack):
    answer = stack.ros.call(Trigger, "watchdog/hold")
    assert answer.success, answer.message
    stack.until("HOLD")
    begin = time.monotonic()
    stack.ros.wait(lambda: time.monotonic() > begin + 1.5, 10.0)
    held = stack.arrived("joint_trajectory", begin + 1.0)
    assert len(held) > 10
    assert all(record["q"] == held[0]["q"] and not any(record["v"]) for record in held)
    assert stack.ros.call(Trigger, "watchdog/release").success


def test_policy_teleop_policy_with_a_joint_moved_in_between(stack):
    """An operator moves a joint by 0.4 rad and lets go: no step is too large, and nothing old comes back."""
    assert all(result.successful for result in stack.set("watchdog", teleop_timeout_s=1.0))  # for this busy machine
    begin = time.monotonic()
    message = stack.joints[-1][1]
    start = np.array([message.position[message.name.index(name)] for name in LIMITS.joint_names])
    goal = start.copy()
    goal[0] += 0.4 if start[0] < 0.5 * (LIMITS.lower[0] + LIMITS.upper[0]) else -0.4
    publisher = stack.ros.publisher(JointTrajectory, "teleop_trajectory")
    writer, taken = TrajectoryWriter(LIMITS.joint_names), time.monotonic()

    def arrived():
        measured = stack.joints[-1][1]
        publisher.publish(writer.write(time.time_ns(), "leader", *glide(start, goal, time.monotonic() - taken, 2.0)))
        time.sleep(0.02)
        return abs(measured.position[measured.name.index(LIMITS.joint_names[0])] - goal[0]) < 0.02

    stack.ros.wait(arrived, PATIENCE_S, "the arm where the operator wants it")
    assert stack.state() == "TELEOP"
    assert stack.cause()["in_command"] == "teleop"
    let_go = time.monotonic()
    stack.until_nominal()
    stack.ros.node.destroy_publisher(publisher)

    stream = stack.arrived("joint_trajectory", begin)
    assert all(record["rest"] and record["finite"] for record in stream)
    for earlier, later in zip(stream, stream[1:]):
        dt = (later["stamp_ns"] - earlier["stamp_ns"]) / 1e9
        assert (np.abs(np.subtract(later["q"], earlier["q"])) <= LIMITS.velocity * dt * 1.02 + 1e-6).all()
        faster = np.abs(np.subtract(later["v"], earlier["v"])) <= LIMITS.acceleration * dt * 1.02 + 1e-6
        assert faster[~LIMITS.discrete].all(), (earlier, later)
    asked_before = {record["id"] for record in stack.arrived("plan_request", begin - 60.0) if record["at"] < let_go}
    after = [r for r in stream if r["at"] > let_go and ":" in r["id"]]
    assert after
    assert not {record["id"] for record in after} & asked_before, "a plan from before the hand-over was executed"
    assert all(result.successful for result in stack.set("watchdog", teleop_timeout_s=0.2))


def test_an_order_that_means_nothing_is_refused_with_its_reason(stack):
    answer = stack.ros.call(Trigger, "watchdog/reset")
    assert not answer.success
    assert "'reset' means nothing in state" in answer.message


def test_parameters_are_refused_with_reasons_and_changed_live(stack):
    (unsafe,) = stack.set("executor", k=900)
    assert not unsafe.successful
    assert "k = 900 is unsafe" in unsafe.reason
    assert "the range is" in unsafe.reason
    (outside,) = stack.set("watchdog", stream_deadline_s=99.0)
    assert not outside.successful
    assert "stream_deadline_s" in outside.reason
    (together,) = stack.set("watchdog", answer_deadline_s=2.0)
    assert "a late answer must be noticed before" in together.reason
    (fixed,) = stack.set("watchdog", period_s=0.01)
    assert "deactivate it first" in fixed.reason
    before = int(stack.task("executor: loop")["missed_ticks"])
    assert all(result.successful for result in stack.set("executor", blend="cut", mismatch=0.3))
    stack.ros.wait(lambda: stack.figures(stack.executor_states)["blend"] == "cut", 5.0, "the new blending")
    assert all(result.successful for result in stack.set("executor", blend="crossfade", mismatch=0.2))
    seen = len(stack.diagnostics)
    stack.ros.wait(lambda: len(stack.diagnostics) > seen + 6, 10.0, "diagnostics")
    assert int(stack.task("executor: loop")["missed_ticks"]) == before


def test_a_second_publisher_is_noticed_by_name(stack):
    rival = stack.ros.publisher(JointTrajectory, "joint_trajectory")

    def noticed():
        return [
            status
            for _, array in stack.diagnostics[-20:]
            for status in array.status
            if status.name == "watchdog: command topic" and status.level == b"\x02" and "/probe" in status.message
        ]

    stack.ros.wait(noticed, 10.0, "the rival in /diagnostics")
    stack.ros.node.destroy_publisher(rival)


def test_the_arm_rests_when_the_watchdog_is_killed_and_a_new_one_takes_over(stack):
    at = stack.strike("watchdog", signal.SIGKILL)
    last = stack.arrived("joint_trajectory", at - 1.0)[-1]
    stack.ros.wait(
        lambda: (
            stack.joints[-1][0] > last["at"] + last["end_s"] + 0.5
            and max(abs(v) for v in stack.joints[-1][1].velocity) < 0.02
        ),
        10.0,
        "the arm at rest",
    )
    stack.states.clear()
    stack.start("watchdog")
    stack.until("NOMINAL")


def test_the_watchdog_stops_the_arm_before_it_leaves(stack):
    at = stack.strike("watchdog", signal.SIGINT)
    assert stack.processes["watchdog"].wait(10.0) == 0
    last = stack.arrived("joint_trajectory", at)[-1]
    assert (last["id"], last["rest"]) == ("stop", True)
    stack.states.clear()
    stack.start("watchdog")
