"""The executor as a process: plans in, one trajectory per control period out, requests in between.

What is decided is decided in ``vla_runtime.control.executor``; here are topics and the loop.
"""

import math
import secrets
import sys

from diagnostic_msgs.msg import DiagnosticStatus
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import EXECUTOR_TABLE
from vla_runtime.control.request import PlanRequest
from vla_runtime.control.standing import where_it_stands
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.errors import UserError
from vla_runtime.nodes.control_node import ControlNode
from vla_runtime.nodes.diagnostics import Status
from vla_runtime.nodes.executor_report import plan_status, state_status
from vla_runtime.nodes.joint_map import JointMap
from vla_runtime.nodes.messages import TrajectoryWriter, read_chunk, read_trajectory
from vla_runtime.nodes.process import run_control
from vla_runtime.nodes.qos import EVENTS, LATCHED, LATEST, STREAM
from vla_runtime.nodes.robot_file import Robot
from vla_runtime.nodes.trace import EXECUTOR_CALLS, executor_note
from vla_runtime.nodes.trajectory_cdr import TrajectoryEncoder

SNAPSHOT_TICKS = 25
WATCHDOG_GONE_S = 1.5
"""A watchdog that was not heard for so long has ended: it says twice a second who is in command."""


class ExecutorNode(ControlNode):
    """Topics round an ``Executor``."""

    phase = 0.0

    def __init__(self) -> None:
        self.core: Executor | None = None
        self.figures: dict = {}
        self.in_command = False
        self._driven = False  # somebody has the arm: the policy, a fallback, an operator
        self._judged = True  # a watchdog looks at what is planned
        self._judge, self._judge_heard = "", -math.inf  # which watchdog says so, and when it last did (steady s)
        self._silent = ""
        super().__init__("executor", EXECUTOR_TABLE)

    # the lifecycle

    def build(self, robot: Robot) -> None:
        """Make the core and the topics."""
        names = robot.limits.joint_names
        # The loop's deadlines are the multiples of its period: a first tick that is late must not set the grid.
        start = {"settings": self.settings, "limits": robot.limits, "epoch": secrets.token_hex(4), "due": 0.0}
        self.core = self.traced(Executor(**start), EXECUTOR_CALLS, executor_note, **start)
        self._applied = self.settings
        self._joints = JointMap(names)
        self._encoder, self._request_writer = TrajectoryEncoder(names), TrajectoryWriter(names)
        self._chunks = self.listen(JointTrajectory, "action_chunk", EVENTS, raw=True)
        self._commands = self.listen(JointTrajectory, "joint_trajectory", STREAM, raw=True)
        self._watchdog = self.listen(DiagnosticStatus, "watchdog/state", LATCHED)
        self._planned = self.speak(JointTrajectory, "planned_trajectory", LATEST)
        self._requests = self.speak(JointTrajectory, "plan_request", EVENTS)

    def teardown(self) -> None:
        """Give everything back."""
        super().teardown()
        self.core = None

    def first_tick_is_due(self, now: float) -> None:
        """Begin without anything from before."""
        self._command: Trajectory | None = None
        self.core.flush("activated")
        self._waiting = True
        self.get_logger().info("waiting for the first plan")

    def last_word(self) -> None:
        """Nothing to say: the watchdog acts on silence."""
        self.figures = self.core.snapshot()
        self.publish_state()

    def object_to(self, settings) -> str | None:
        """A K outside the range that the measured delay and the policy's horizon allow is refused."""
        return self.core.refuses(settings) if self.core is not None and self.loop is not None else None

    # the tick

    def tick(self, now: float) -> None:
        """Hear, plan, ask."""
        core = self.core
        if self.settings is not self._applied:
            self._retune()
        self._hear_watchdog()
        for at, data, _, request_id in self.headed(self._chunks):
            self._offer(now, at, data, request_id)
        plans = core.plans(self._judged)
        if plans and not self.in_command:
            self._hear_command()
        joints = self.read_joints()
        if not self._driven:
            limits = core.limits
            self._command = where_it_stands(now, self._command, joints, limits, self.settings.period_s)
        tick = core.tick(now, joints, self._command, self.in_command, plans)
        if tick.planned is not None:
            self._publish(tick.planned)
        if tick.request is not None:
            self._ask(tick.request)
        if self.loop.statistics.ticks % SNAPSHOT_TICKS == 0:
            self.figures = core.snapshot()
            if self.figures["silent"] != self._silent:
                self._silent = self.figures["silent"]
                self.outbox.post(self.publish_state)

    def _publish(self, planned: Trajectory) -> None:
        stamp = self.stamps.to_stamp(planned.start)
        self._planned.publish(
            self._encoder.encode(stamp, planned.plan_id, planned.times, planned.positions, planned.velocities)
        )

    def _retune(self) -> None:
        self._applied = self.settings
        try:
            self.core.retune(self._applied)
        except ValueError as error:
            self.log_later("error", f"the new parameters are not in use: {error}")

    def _hear_watchdog(self) -> None:
        for at, message in self._watchdog.take():
            values = {pair.key: pair.value for pair in message.values}
            who, judge = values.get("in_command", "none"), values.get("instance", "")
            self._judged = who != "teleop"
            if who == "none" and judge != self._judge and at - self._judge_heard < WATCHDOG_GONE_S:
                continue  # a second watchdog, that gave way to the one in command
            self._judge, self._judge_heard = judge, at
            was, self.in_command = self.in_command, who == "policy"
            self._driven = who != "none"
            if was and not self.in_command:
                self.core.flush(f"command left the policy: {message.message}")

    def _hear_command(self) -> None:
        newest = self._commands.newest()
        if newest is None:
            return
        try:
            command = read_trajectory(newest[1], self._joints, self.stamps, newest[0])
            fault = command.fault()  # whoever else may speak there: plans begin at this
        except UserError as error:
            fault = str(error)
        if fault:
            self.not_understood(self._commands, fault)
            return
        self._command = command

    def _offer(self, now: float, at: float, data: bytes, request_id: str) -> None:
        try:
            refusal = self.core.offer(now, read_chunk(data, self.stamps, at))
        except UserError as error:
            refusal = error
        if refusal is not None:
            self.log_later("warning", f"plan {request_id} refused: {refusal}")
        elif self._waiting:
            self._waiting = False
            self.log_later("info", f"the first plan is here: {request_id}")

    def _ask(self, request: PlanRequest) -> None:
        # What will have been executed for certain when the answer comes, and what was executed a moment ago: the
        # observation is a little older than the request.
        count = int((request.times < -1e-9).sum()) + request.committed
        stamp = self.stamps.to_stamp(request.stamp)
        self._requests.publish(
            self._request_writer.write(
                stamp, request.request_id, request.times[:count], request.positions[:count], None
            )
        )

    # what others see

    def describe(self) -> Status:
        """The latched state."""
        return state_status(self.loop is not None, self.in_command, self.figures)

    def report(self) -> list[Status]:
        """The tasks of /diagnostics."""
        return [*super().report(), plan_status(self.figures, self.joint_reader.fault)] if self.loop is not None else []


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``executor_node``."""
    return run_control(ExecutorNode, args)


if __name__ == "__main__":
    sys.exit(main())
