"""The watchdog as a process: the only publisher on the controller's topic.

It shares nothing with what it judges but messages. Small on purpose: what is decided is decided in
``vla_runtime.control.watchdog``; here are topics, services and the loop.
"""

import math
import secrets
import sys
import time
from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.duration import Duration
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.fallback import installed_planners
from vla_runtime.control.precedence import Precedence, instance_name
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog import WATCHDOG_PHASE, Watchdog
from vla_runtime.control.watchdog_report import snapshot
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
from vla_runtime.control.watchdog_states import Command, State
from vla_runtime.errors import UserError
from vla_runtime.nodes.control_node import ControlNode
from vla_runtime.nodes.controllers import CommandOutput
from vla_runtime.nodes.diagnostics import Status
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.joint_map import JointMap
from vla_runtime.nodes.lifecycle import TransitionRefusedError
from vla_runtime.nodes.messages import read_trajectory
from vla_runtime.nodes.process import run_control
from vla_runtime.nodes.publishers import GIVE_WAY_S, PublisherWatch, senders_status
from vla_runtime.nodes.qos import EVENTS, LATCHED_MANY, LATEST, STREAM
from vla_runtime.nodes.robot_file import Robot
from vla_runtime.nodes.trace import WATCHDOG_CALLS, watchdog_note
from vla_runtime.nodes.watchdog_report import input_status, state_status, watchdog_status

SNAPSHOT_TICKS = 25
ACK_TIMEOUT = Duration(seconds=0.3)


class WatchdogNode(ControlNode):
    """Topics and services round a ``Watchdog``."""

    phase = WATCHDOG_PHASE
    lead = 0.2

    def __init__(self) -> None:
        self.core: Watchdog | None = None
        self.output: CommandOutput | None = None
        self.command = Command(None, "INACTIVE", "not activated", "none")
        self._precedence = Precedence(instance_name(time.time_ns(), secrets.token_hex(2)))
        self._rival: PublisherWatch | None = None
        self._listens_until = math.inf  # steady seconds
        self.figures: dict = {}
        super().__init__("watchdog", WATCHDOG_TABLE)
        self._orders = [
            self.create_service(Trigger, f"~/{order}", self._answer_order(order))
            for order in ("hold", "release", "reset")
        ]  # fmt: skip

    # the lifecycle

    def build(self, robot: Robot) -> None:
        """Make the core and the topics."""
        start = {"settings": self.settings, "limits": robot.limits, "poses": robot.poses}
        core = Watchdog(**start, planners=installed_planners())
        self.core = self.traced(core, WATCHDOG_CALLS, watchdog_note, **start)
        self._applied = self.settings
        self._joints = JointMap(robot.limits.joint_names)
        self._planned = self.listen(JointTrajectory, "planned_trajectory", STREAM, raw=True)
        self._teleop = self.listen(JointTrajectory, "teleop_trajectory", LATEST, raw=True)
        self._requests = self.listen(JointTrajectory, "plan_request", EVENTS, raw=True)
        self._answers = self.listen(JointTrajectory, "action_chunk", EVENTS, raw=True)
        self._heartbeats = self.listen(Header, "heartbeat", EVENTS, raw=True)
        self._watchdogs = self.listen(DiagnosticStatus, "watchdog/state", LATCHED_MANY)
        self._single = (self._planned, self._teleop, self._requests, self._answers, self._heartbeats)
        immediate = self.parameters["node"].stamp_mode == "immediate"
        self.output = CommandOutput(self, robot, immediate=immediate)

    def start(self) -> None:
        """Begin to watch, unless somebody else drives the arm."""
        self._rival, self._listens_until = None, math.inf
        self.output.listen()
        self._precedence.began()
        super().start()

    def halt(self) -> None:
        """End the loop after the stop."""
        super().halt()
        if self.output is not None:
            self.output.stop_listening()

    def teardown(self) -> None:
        """Give everything back."""
        super().teardown()
        self.core = None

    def first_tick_is_due(self, now: float) -> None:
        """The core begins to watch."""
        self._ticked = now
        self.core.activate(now)

    def last_word(self) -> None:
        """Publish the stop, and see that it leaves the house."""
        now = max(self.steady_now(), self._ticked)  # a tick is for an instant that is still to come
        cause = "deactivated" if self._rival is None else f"gave way: {self._rival.refusal()}"
        speak = self._say(self.core.stop(now, cause))
        if speak is not None:
            speak()
        self.figures = snapshot(self.core, now)
        self.publish_state()
        self.output.wait_for_all_acked(ACK_TIMEOUT)

    # the tick

    def tick(self, now: float) -> Callable[[], None] | None:
        """Hear, decide, command."""
        core, self._ticked = self.core, now
        if self._another_commands(now) and core.state is State.WARMUP:
            return None
        if self.settings is not self._applied:
            self._applied = self.settings
            core.retune(self._applied)
        for at, _, _, request_id in self.headed(self._requests):
            core.saw_request(at, request_id)
        for at, _, stamp, request_id in self.headed(self._answers):
            core.saw_answer(at, request_id, self.stamps.to_steady(stamp))
        for at, _, _, status in self.headed(self._heartbeats):
            core.saw_heartbeat(at, status)
        teleop = self._read(self._teleop)
        if teleop is not None:
            core.offer_teleop(now, teleop)
        command = core.tick(now, self.read_joints(), self._read(self._planned))
        speak = self._say(command)
        if self.loop.statistics.ticks % SNAPSHOT_TICKS == 0:
            self.figures = snapshot(core, now)
        return speak

    def _another_commands(self, now: float) -> bool:
        """Whether somebody else drives the arm: one that discovery had not found yet when this node began to watch.

        Who has commanded already does not simply try again: two that begin at once would go on beginning.
        """
        if self._rival is None and now < self._listens_until:
            self._rival = self.output.rival()
            if self._rival is not None:
                silent = self.core.state is State.WARMUP
                self.outbox.post(lambda: self._give_way(self._rival, silent))
        return self._rival is not None

    def _give_way(self, rival: PublisherWatch, silent: bool) -> None:
        if self.lifecycle_state != "active":
            return
        if not silent and self.core.state not in (State.HOLD, State.FAULT):  # whom a person stopped, a person starts
            self._precedence.gave_way(self.steady_now())
        self.step_back(rival.refusal(retry=silent))

    def _settle(self) -> None:
        """Begin again, or say for whom it waits, where several watchdogs have given way to each other."""
        now, own = self.steady_now(), self._precedence.instance
        for at, message in self._watchdogs.take():
            values = {pair.key: pair.value for pair in message.values}
            commands = values.get("in_command", "none") != "none"
            self._precedence.heard(at, values.get("instance", ""), commands, values.get("gave_way") == "true")
        first = self._precedence.decide(now)
        if first == own:
            self.get_logger().warning(f"the other watchdog began after this one ({own}): trying again")
            self.reconsider()
        elif first:
            where = self.output.rivals[0].topic
            text = f"watchdog {first} commanded on '{where}' too, and it began before this one ({own})"
            self._refuse("activate", TransitionRefusedError(f"{text}: the arm is its, this one waits to be activated"))

    def _listen_to_elders(self) -> None:
        """Listen again where a watchdog that began earlier says that it commands too: both had closed their ears."""
        now = self.steady_now()
        elder = self._precedence.elder(now) if self.command.in_command != "none" else ""
        if elder and self.output.crowded:
            self.output.listen_again()
            self.get_logger().warning(
                f"watchdog {elder}, which began before this one, says that it commands: listening"
            )
            self._listens_until = now + GIVE_WAY_S

    def _read(self, source: PolledInput) -> Trajectory | None:
        newest = source.newest()
        if newest is None:
            return None
        try:
            return read_trajectory(newest[1], self._joints, self.stamps, newest[0])
        except UserError as error:
            self.not_understood(source, str(error))
            self.core.refused["malformed"] += 1
            return None

    def _say(self, command: Command) -> Callable[[], None] | None:
        speaks, spoke = command.trajectory is not None, self.command.trajectory is not None
        self.command = command
        if speaks and not spoke:
            self._listens_until = self._ticked + GIVE_WAY_S
        elif spoke and not speaks and command.state is not State.INACTIVE:
            self._listens_until = math.inf  # this process slept: as at its start it listens until it speaks
            self.outbox.post(self.output.listen_again)
        if command.transition is not None:
            change = command.transition
            quiet = change.target.value in ("NOMINAL", "WARMUP", "INACTIVE", "TELEOP")
            self.log_later(
                "info" if quiet else "warning", f"{change.source} -> {change.target}: {change.cause} (#{change.count})"
            )
            self.outbox.post(self.publish_state)
        if command.trajectory is None:
            return None
        return self._in_time(command.trajectory.start, self.output.ready(command.trajectory))

    def _in_time(self, now: float, send: Callable[[], None]) -> Callable[[], None]:
        """Send at ``now``, or not at all once the next command is due.

        A process that was stopped between the two would say something old as the first thing when it wakes.
        """

        def speak() -> None:
            if self.steady_now() - now < self.settings.period_s:
                send()
            else:
                self.core.unsaid()

        return speak

    def regularly(self) -> None:
        """Close the ears when their time is over, a little later than the control thread uses them."""
        super().regularly()
        if self.core is None:
            return
        if self.steady_now() > self._listens_until + 1.0:
            self.output.stop_listening()
            self._precedence.settled()
            self._listen_to_elders()
        self._settle()

    # what others see and ask

    def describe(self) -> Status:
        """The latched state."""
        return state_status(self.command, self.core, self.figures, self.stamps, self._precedence)

    def report(self) -> list[Status]:
        """The tasks of /diagnostics."""
        if self.core is None:
            return []
        return [
            *super().report(),
            watchdog_status(self.command, self.figures),
            input_status(self.figures, self.joint_reader, self.settings),
            *self.output.statuses(),
            senders_status(
                self,
                {source.topic: 1 for source in self._single} | {self.joint_states.topic: self.joint_reader.sources},
            ),
        ]

    def _answer_order(self, order: str):
        def answer(_request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            if self.lifecycle_state != "active":
                reason = f"the watchdog is {self.lifecycle_state}, not active"
            else:
                try:
                    reason = self.ask(getattr(self.core, order))
                except TimeoutError as error:
                    reason = str(error)
            response.success = not reason
            response.message = reason or f"{order}: done"
            return response

        return answer


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``watchdog_node``."""
    return run_control(WatchdogNode, args)


if __name__ == "__main__":
    sys.exit(main())
