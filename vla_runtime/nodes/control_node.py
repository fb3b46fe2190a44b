"""What executor and watchdog share: robot limits, the control loop, its figures, joint states at the tick."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator

from rclpy.lifecycle import LifecyclePublisher
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from vla_runtime.control.parameters import Table
from vla_runtime.control.trajectory import JointSample
from vla_runtime.nodes.diagnostics import Status, loop_status
from vla_runtime.nodes.handover import Inbox
from vla_runtime.nodes.heartbeat import PERIOD_S as HEARTBEAT_S
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.joint_map import JointReader
from vla_runtime.nodes.lifecycle import HOUSEKEEPING_S, ManagedNode
from vla_runtime.nodes.loop import ControlLoop
from vla_runtime.nodes.messages import MessageError, read_header
from vla_runtime.nodes.parameters import NodeParameters
from vla_runtime.nodes.qos import JOINT_STATES, TRACE
from vla_runtime.nodes.realtime import (
    keep_heap,
    lock_memory,
    prepare_interpreter,
    release_realtime,
    reserve_heap,
    stay_on,
)
from vla_runtime.nodes.robot_file import Robot, load_robot
from vla_runtime.nodes.tables import CONTROL_NODE
from vla_runtime.nodes.trace import Note, Traced, pieces

ASK_TIMEOUT_S = 0.5
TRACE_KEPT_S = 20.0
"""How long calls wait for a recorder, if there are as many as there can be. Each is some kilobytes."""
TRACE_PIECE = 16_000
"""Characters of a message of the trace, all of them: see :func:`vla_runtime.nodes.trace.pieces`."""
_SAME_ERROR = 50
"""An exception of the tick, or messages of a topic that are not understood, are logged the first time and then once per
this many."""


def calls_a_second(period_s: float) -> float:
    """The most calls of a core that are traced in a second: two a tick, and the policy's heartbeats."""
    return 2.0 / period_s + 1.0 / HEARTBEAT_S


class ControlNode(ManagedNode):
    """A node around a pure core that is ticked once per control period.

    A subclass says how to ``build`` and ``unbuild`` its core, inputs and publishers, and what to do in a ``tick``.
    All use of the core happens in the control thread while active: others ``ask``.
    """

    phase = 0.0
    """Where in the period this loop speaks, as a fraction of it."""
    lead = 0.0
    """How long before that it begins to work, as a fraction of the period."""

    def __init__(self, name: str, core_table: Table):
        self.loop: ControlLoop | None = None
        self.inbox = Inbox()
        self.robot: Robot | None = None
        self.sample: JointSample | None = None
        self.lock_refusal = ""
        self._inputs: list[PolledInput] = []
        self._outputs: list[LifecyclePublisher] = []
        self._not_understood: Counter[str] = Counter()  # messages by topic
        self._trace = None
        self._notes: deque[Note] = deque()
        self._traced: Traced | None = None
        super().__init__(
            name,
            lambda node: NodeParameters(
                node,
                {"node": CONTROL_NODE, "core": core_table},
                active=lambda: node.lifecycle_state == "active",
                extra=lambda table, settings: node.object_to(settings) if table == "core" else None,
                changed=node.reconsider,
            ),
        )

    # what a subclass overrides

    def build(self, robot: Robot) -> None:
        """Make the core, the inputs and the publishers."""

    def tick(self, now: float) -> Callable[[], None] | None:
        """One control period, in the control thread; what it returns is called at the instant ``now``."""

    def first_tick_is_due(self, now: float) -> None:
        """Called before the loop starts: the core begins."""

    def last_word(self) -> None:
        """Called after the loop has ended, publishers still enabled: what must be said before falling silent."""

    def object_to(self, settings) -> str | None:
        """A reason against new settings of the core that only the running node knows, or None."""

    def regularly(self) -> None:
        """Write out the trace."""
        super().regularly()
        self._send_trace()

    # for subclasses

    @property
    def settings(self):
        """The core's settings as they are now."""
        return self.parameters["core"]

    def listen(self, message_type: type, topic: str, qos, *, raw: bool = False) -> PolledInput:
        """Subscribe to a topic that the control thread reads at its tick."""
        made = PolledInput(self, message_type, topic, qos, self.qos_fault, raw=raw)
        self._inputs.append(made)
        return made

    def speak(self, message_type: type, topic: str, qos) -> LifecyclePublisher:
        """A publisher that is silent unless the node is active."""
        made = self.create_lifecycle_publisher(message_type, topic, qos)
        self._outputs.append(made)
        return made

    def traced(self, core, methods: tuple[str, ...], note, **start):
        """The core behind a writer of its calls on ``~/trace`` (for `vla replay`), if the parameter ``trace`` is set.

        ``note``: a result's short text; ``start``: what makes the same core again.
        """
        if not self.parameters["node"].trace:
            return core
        self._trace = self.create_publisher(String, "~/trace", TRACE)
        self._notes.clear()
        self._traced = Traced(core, methods, self._notes.append, note)
        self._traced.begin(**start)
        return self._traced

    def _send_trace(self, all_at_once: bool = False) -> None:
        """Write out what was noted, one call a line: a message a call would cost six times as much.

        While nobody listens it costs next to nothing: notes wait for a recorder that comes a little late, and when none
        comes, nothing is noted any more (a trace without its beginning is of no use).
        """
        if self._trace is None or not self._notes:
            return
        come = calls_a_second(self.settings.period_s)
        if self._trace.get_subscription_count() == 0:
            if len(self._notes) > TRACE_KEPT_S * come:
                self._traced.tracing = False
                self._notes.clear()
            return
        # Twice what comes in meanwhile: a backlog goes down, and does not hold the interpreter for long.
        most = len(self._notes) if all_at_once else math.ceil(2.0 * HOUSEKEEPING_S * come)
        count = min(len(self._notes), most)
        lines = (self._notes.popleft().text() for _ in range(count))
        # More pieces than are kept, at once, would be lost.
        for text in ["\n".join(lines)] if all_at_once else pieces(lines, TRACE_PIECE):
            self._trace.publish(String(data=text))

    def read_joints(self) -> JointSample | None:
        """The newest joint state there is, the same one again if none came. At the tick only."""
        taken = self.joint_states.take()
        if taken:
            messages, arrival = [data for _, data in taken], taken[-1][0]
            self.sample = self.joint_reader.read_newest(messages, self.stamps.to_steady, arrival) or self.sample
        return self.sample

    def headed(self, source: PolledInput) -> Iterator[tuple[float, bytes, int, str]]:
        """What arrived on a topic whose messages begin with a header; what does not is not understood. At the tick.

        Yields steady seconds of the arrival, the bytes, the stamp in nanoseconds of ROS time and the frame_id.
        """
        for at, data in source.take():
            try:
                stamp, frame_id = read_header(data)
            except MessageError as error:
                self.not_understood(source, str(error))
                continue
            yield at, data, stamp, frame_id

    def not_understood(self, source: PolledInput, why: str) -> None:
        """Count a message that is of no use, and say so now and then: it may come fifty times a second."""
        self._not_understood[source.topic] += 1
        count = self._not_understood[source.topic]
        if count % _SAME_ERROR == 1:
            self.log_later("error", f"{source.topic}: not understood ({count} so far): {why}")

    def ask(self, question):
        """Have ``question(now)`` answered by the control thread. Raises TimeoutError."""
        return self.inbox.ask(question, ASK_TIMEOUT_S)

    # the hooks of the lifecycle

    def setup(self) -> None:
        """Load the robot, build."""
        self.robot = load_robot(self.parameters["node"].robot)
        names = self.robot.limits.joint_names
        self.joint_reader = JointReader(names)
        self.joint_states = self.listen(JointState, "joint_states", JOINT_STATES, raw=True)
        self.build(self.robot)

    def start(self) -> None:
        """Run the loop."""
        node, period_s = self.parameters["node"], self.settings.period_s
        refusal = stay_on(node.cpu)
        if refusal:
            self.get_logger().warning(refusal)
        if node.lock_memory:
            self.lock_refusal = lock_memory()
            if self.lock_refusal:
                self.get_logger().warning(self.lock_refusal)
        prepare_interpreter()
        keep_heap()
        reserve_heap()
        for each in self._inputs:
            each.take()  # what came before does not count
        self.sample = None
        loop = ControlLoop(
            self._tick,
            period_s,
            name=f"{self.get_name()} loop",
            phase_s=self.phase * period_s,
            lead_s=self.lead * period_s,
            priority=node.realtime_priority,
            on_error=self._tick_failed,
        )
        self.first_tick_is_due(self.steady_now())
        self.loop = loop
        loop.start()
        if loop.realtime_refusal:
            self.get_logger().warning(loop.realtime_refusal)

    def halt(self) -> None:
        """End the loop, say the last word."""
        if self.loop is not None:
            self.loop.stop()
            self.loop = None
            release_realtime()
            self.last_word()

    def teardown(self) -> None:
        """Give back inputs and publishers."""
        for each in self._inputs:
            each.destroy(self)
        for each in self._outputs:
            self.destroy_lifecycle_publisher(each)
        self._inputs, self._outputs = [], []
        if self._trace is not None:
            self._send_trace(all_at_once=True)
            self.destroy_publisher(self._trace)
            self._trace = self._traced = None

    def report(self) -> list[Status]:
        """The loop and the joint states."""
        loop = self.loop
        if loop is None:
            return []
        refusal = loop.realtime_refusal
        locked = self.lock_refusal if self.parameters["node"].lock_memory else "not asked for (lock_memory)"
        return [loop_status(loop.statistics.figures(), self.settings.period_s, refusal, locked)]

    def _tick(self, now: float) -> Callable[[], None] | None:
        self.inbox.answer(now)
        self.watch_clock()
        return self.tick(now)

    def _tick_failed(self, text: str) -> None:
        failed = self.loop.statistics.failed if self.loop is not None else 1
        if failed % _SAME_ERROR == 1:
            self.log_later("error", f"tick failed ({failed} times):\n{text}")
