"""The monitor's ears: subscriptions that put what they hear on the board."""

import time
from contextlib import suppress

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.srv import GetParameters
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.toolchain.monitor.board import Board, Status

NODES = ("watchdog", "executor", "policy")
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Every command is counted, so none may push out another; best effort hears publishers of every kind.
COMMANDS = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)
LOOK_AROUND_S = 1.0
DEADLINES = {
    "joint_state_age_s": "joint_state_deadline_s",
    "stream_age_s": "stream_deadline_s",
    "request_age_s": "answer_deadline_s",
    "heartbeat_age_s": "answer_deadline_s",
    "observation_age_s": "max_observation_age_s",
}
"""The watchdog's parameter that each age is held against."""


class Listener:
    """Subscribes in a context of its own; ``listen`` spins in the caller's thread."""

    def __init__(self, board: Board, namespace: str = "", command_topic: str = ""):
        self._board = board
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node(
            "vla_monitor", context=self._context, namespace=namespace or None, enable_rosout=False,
            start_parameter_services=False,
        )  # fmt: skip
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._command_topic = command_topic
        self._commands: PolledInput | None = None  # polled: a callback for each would cost a tenth of a core
        self._looked = float("-inf")
        prefix = self._node.get_namespace().strip("/")
        self._mine = f"{prefix}/" if prefix else ""
        for name in NODES:
            self._node.create_subscription(DiagnosticStatus, f"{name}/state", self._state(name), LATCHED)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnostics, 50)
        self._node.create_subscription(Float64MultiArray, "policy/latency", self._latency, 50)
        self._parameters = self._node.create_client(GetParameters, "watchdog/get_parameters")

    def listen(self, seconds: float) -> None:
        """Put on the board what comes within this time. KeyboardInterrupt passes through."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if time.monotonic() - self._looked > LOOK_AROUND_S:
                self._look_around()
            with suppress(ExternalShutdownException):
                self._executor.spin_once(timeout_sec=min(left, 0.1))
            for at, _ in self._commands.take() if self._commands is not None else ():
                self._board.hear_command(at)

    def ros_now(self) -> float:
        """Seconds of the ROS clock."""
        return self._node.get_clock().now().nanoseconds * 1e-9

    def close(self) -> None:
        """Leave the domain."""
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def _look_around(self) -> None:
        """See who publishes commands, begin to listen once their topic is known, and ask for the deadlines."""
        self._looked = time.monotonic()
        if self._parameters.service_is_ready():
            request = GetParameters.Request(names=list(DEADLINES.values()))
            self._parameters.call_async(request).add_done_callback(self._note_deadlines)
        if self._command_topic and self._commands is None:
            self._commands = PolledInput(self._node, JointTrajectory, self._command_topic, COMMANDS, None, raw=True)
        if self._command_topic:
            infos = self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(self._command_topic))
            self._board.publishers = tuple(sorted(f"{i.node_namespace.rstrip('/')}/{i.node_name}" for i in infos))

    def _note_deadlines(self, future) -> None:
        if future.exception() is None:
            for key, value in zip(DEADLINES, future.result().values):
                self._board.hear_limit(key, value.double_value)

    def _state(self, name: str):
        return lambda message: self._board.hear_state(name, _status(message))

    def _diagnostics(self, array: DiagnosticArray) -> None:
        for message in array.status:
            if not message.name.startswith(self._mine) or message.name.split(":")[0].count("/") != self._mine.count(
                "/"
            ):
                continue
            status = _status(message)
            self._board.hear_diagnostics(message.name, status)
            if message.name.endswith("watchdog: command topic") and not self._command_topic:
                self._command_topic = status.values.get("topic", "")

    def _latency(self, message: Float64MultiArray) -> None:
        self._board.hear_latency({dim.label: value for dim, value in zip(message.layout.dim, message.data)})


def _status(message: DiagnosticStatus) -> Status:
    level = message.level[0] if isinstance(message.level, (bytes, bytearray)) else int(message.level)
    return Status(time.monotonic(), level, message.message, {pair.key: pair.value for pair in message.values})
