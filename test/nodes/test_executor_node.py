"""What the executor's node tells of plans, and what it takes from the command topic; its core stands aside."""

import math
from types import SimpleNamespace

import pytest
from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.serialization import serialize_message
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.nodes.executor_node import ExecutorNode
from vla_runtime.nodes.joint_map import JointMap


def answer(request_id: str) -> bytes:
    message = JointTrajectory(joint_names=["a"])
    message.header.frame_id = request_id
    message.points = [
        JointTrajectoryPoint(positions=[0.0], time_from_start=Duration(nanosec=20_000_000 * i)) for i in range(3)
    ]
    return serialize_message(message)


@pytest.fixture
def executor(lonely, monkeypatch):
    """An executor that waits for its first plan; `said` are its log lines, `verdicts` what its core thinks of plans."""
    node = lonely(ExecutorNode, "--ros-args", "-p", "autostart:=false")
    said, verdicts = [], []
    monkeypatch.setattr(node, "log_later", lambda level, text: said.append((level, text)))
    node.core = SimpleNamespace(flush=lambda cause: None, offer=lambda now, chunk: verdicts.pop(0))
    node.first_tick_is_due(0.0)
    return SimpleNamespace(node=node, said=said, verdicts=verdicts)


def test_the_first_plan_that_is_taken_is_told_once(executor):
    executor.verdicts += ["too old", None, None]
    for number in range(3):
        executor.node._offer(1.0, 1.0, answer(f"ab12:{number}"), f"ab12:{number}")
    assert executor.said == [
        ("warning", "plan ab12:0 refused: too old"),
        ("info", "the first plan is here: ab12:1"),
    ]
    executor.node.first_tick_is_due(2.0)
    executor.verdicts.append(None)
    executor.node._offer(2.0, 2.0, answer("ab12:9"), "ab12:9")
    assert executor.said[-1] == ("info", "the first plan is here: ab12:9")


@pytest.mark.parametrize(
    ("times_ms", "positions", "why"),
    [
        ((0, 20, 40), (0.0, math.nan, 0.0), "position of a at point 1 is nan"),
        ((0, 20, 20), (0.0, 0.1, 0.2), "points 1 and 2 are 0.0000 s apart"),
    ],
)
def test_a_command_of_somebody_else_that_cannot_be_followed_is_not_where_plans_begin(
    executor, times_ms, positions, why
):
    message = JointTrajectory(joint_names=["a"])
    message.points = [
        JointTrajectoryPoint(positions=[p], velocities=[0.0], time_from_start=Duration(nanosec=1_000_000 * ms))
        for ms, p in zip(times_ms, positions)
    ]
    node = executor.node
    node._joints, said = JointMap(["a"]), serialize_message(message)
    node._commands = SimpleNamespace(newest=lambda: (1.0, said), topic="/joint_trajectory")
    node._hear_command()
    assert node._command is None
    assert why in executor.said[-1][1]


def test_what_cannot_be_read_is_passed_over_and_told_now_and_then(executor):
    """It raised in the control thread, once per tick: nothing was planned meanwhile."""
    good, cut = answer("ab12:1"), answer("ab12:2")[:9]
    source = SimpleNamespace(take=lambda: [(0.5, cut), (1.0, good), (1.5, cut)] * 60, topic="/action_chunk")
    heard = list(executor.node.headed(source))
    assert heard == [(1.0, good, 0, "ab12:1")] * 60
    assert len(executor.said) == 3
    assert all("/action_chunk: not understood" in text and "9 bytes" in text for _, text in executor.said)


def test_a_second_watchdog_that_gave_way_takes_the_command_from_nobody(executor):
    """It says twice a second that nobody is in command; the plan was thrown away each time."""
    node, flushed, heard = executor.node, [], []
    node.core.flush = flushed.append
    node._watchdog = SimpleNamespace(take=lambda: [heard.pop(0)])

    def hear(at, instance, who, state="NOMINAL"):
        values = [KeyValue(key="in_command", value=who), KeyValue(key="instance", value=instance)]
        heard.append((at, DiagnosticStatus(message=state, values=values)))
        node._hear_watchdog()
        return node.in_command

    assert not hear(0.0, "second", "none", "INACTIVE")
    assert hear(0.1, "first", "policy")
    assert hear(0.5, "second", "none", "INACTIVE")
    assert hear(0.6, "first", "policy")
    assert hear(1.0, "second", "none", "WARMUP")
    assert flushed == []
    assert not hear(1.1, "first", "none", "INACTIVE")
    assert flushed == ["command left the policy: INACTIVE"]
    assert hear(1.6, "first", "policy")
    assert not hear(3.2, "third", "none", "WARMUP")  # the first was killed, and this is its successor
    assert hear(3.4, "third", "policy")
    assert hear(3.5, "fourth", "fallback") is False  # whoever commands counts, whatever he is called
