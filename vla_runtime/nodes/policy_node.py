"""The policy as a process: pictures and joints in, one chunk per request out, and a pulse.

Threads: the spinning thread (requests, services, transitions), the inference thread (reads the inputs, runs the
policy, publishes answers), the heartbeat. What an engine does to this process cannot reach the control loops.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Float64MultiArray, Header, String
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.finite import all_finite
from vla_runtime.control.latency import StageLatencies
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.errors import UserError
from vla_runtime.nodes.diagnostics import Status
from vla_runtime.nodes.heartbeat import Heartbeat
from vla_runtime.nodes.inference import Answer, InferenceWorker, Request, noise_seed
from vla_runtime.nodes.inputs import watch_qos
from vla_runtime.nodes.joint_map import JointMap
from vla_runtime.nodes.lifecycle import ManagedNode, TransitionRefusedError
from vla_runtime.nodes.messages import MessageError, TrajectoryWriter, read_table, read_times, stamp_ns
from vla_runtime.nodes.observer import Observer
from vla_runtime.nodes.parameters import NodeParameters
from vla_runtime.nodes.policy_report import (
    inference_status,
    input_status,
    latency_message,
    model_status,
    state_status,
)
from vla_runtime.nodes.process import run
from vla_runtime.nodes.qos import EVENTS, LATCHED, LATEST, TRACE, no_warnings
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.nodes.tables import POLICY_NODE
from vla_runtime.nodes.trace import inference_record
from vla_runtime.policy.bundle import Bundle, load_bundle
from vla_runtime.policy.policy import Policy, load_policy
from vla_runtime.policy.tokenizer import InstructionTokenizer


class PolicyNode(ManagedNode):
    """Serves one bundle. ``load`` is how a bundle becomes a policy (the simulation puts faults round it)."""

    def __init__(self, load: Callable[..., Policy] = load_policy) -> None:
        self._load = load
        self.policy: Policy | None = None
        self.observer: Observer | None = None
        self.worker: InferenceWorker | None = None
        self.latencies = StageLatencies()
        self._tokenizer: InstructionTokenizer | None = None
        self._published_instruction = ""
        self._subscriptions_made: list = []
        super().__init__(
            "policy",
            lambda node: NodeParameters(
                node,
                {"node": POLICY_NODE},
                active=lambda: node.lifecycle_state == "active",
                extra=lambda table, settings: node.object_to(settings),
                changed=node.parameters_changed,
            ),
        )
        self._beats = self.create_publisher(Header, "heartbeat", EVENTS)
        self._beat_header = Header()
        self.heartbeat = Heartbeat(self.status_word, self._beat)

    @property
    def settings(self):
        """The node's parameters as they are now."""
        return self.parameters["node"]

    # the lifecycle

    def setup(self) -> None:
        """Load the bundle and its engines, warm up, subscribe."""
        settings = self.settings
        if not settings.bundle:
            raise UserError("parameter bundle is empty: give the directory of a policy (with policy.yaml)")
        bundle = load_bundle(settings.bundle)
        self._check_joints(bundle)
        begin = time.monotonic()
        self.policy = self._load(
            bundle,
            settings.engine,
            allow_unproven=settings.allow_unproven,
            settings=EngineSettings(threads=settings.threads, device=settings.device),
        )
        self.policy.warm_up()
        self.get_logger().info(f"bundle '{bundle.policy.name}' is warm after {time.monotonic() - begin:.1f} s")
        model = bundle.policy
        self.observer = Observer(
            self,
            model,
            self.stamps,
            self.qos_fault,
            transport=settings.image_transport,
            max_age_s=settings.max_input_age_s,
        )
        self._tokenizer = _tokenizer(bundle)
        self._instruct(self._published_instruction or settings.instruction)
        self._joints = JointMap(model.action.joints)
        self._writer = TrajectoryWriter(model.action.joints)
        self._times = model.dt_s * np.arange(model.horizon)
        self._chunks = self.create_lifecycle_publisher(JointTrajectory, "action_chunk", EVENTS)
        self._latency = self.create_lifecycle_publisher(Float64MultiArray, "~/latency", 10)
        self._trace = self.create_lifecycle_publisher(String, "~/trace", TRACE)
        volatile = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        self._subscriptions_made = [
            self.create_subscription(JointTrajectory, "plan_request", self._requested, LATEST),
            # `ros2 topic pub` is not latched, a launch file's publisher is: hear both. What the first of these does
            # not hear the second does, so rclpy's warning that it hears nothing would be a false one.
            self.create_subscription(String, "instruction", self._instructed, LATCHED, event_callbacks=no_warnings()),
            self.create_subscription(String, "instruction", self._instructed, volatile),
        ]

        watch_qos(self, self.resolve_topic_name("plan_request"), LATEST, self.qos_fault)

    def start(self) -> None:
        """Take requests, once every input has been heard."""
        missing = self.observer.missing(self.steady_now())
        if missing:
            raise TransitionRefusedError(missing, retry=True)
        self.observer.forget()
        self.latencies = StageLatencies()
        self.worker = InferenceWorker(
            self.policy,
            self.observer.observe,
            self._answer,
            self._failed,
            frame_wait_s=self.settings.frame_wait_s,
            max_failures=self.settings.max_failures,
        )
        self.worker.start()

    def halt(self) -> None:
        """Answer no more."""
        worker, self.worker = self.worker, None
        if worker is not None and not worker.stop(0.1 if self.fatal else 5.0):
            self.give_up("an inference does not end; only a new process recovers from that")

    def teardown(self) -> None:
        """Forget the policy and the topics."""
        for each in self._subscriptions_made:
            self.destroy_subscription(each)
        if self._subscriptions_made:
            self.destroy_lifecycle_publisher(self._chunks)
            self.destroy_lifecycle_publisher(self._latency)
            self.destroy_lifecycle_publisher(self._trace)
        if self.observer is not None:
            self.observer.destroy()
        self._subscriptions_made, self.observer, self.policy = [], None, None

    def destroy_node(self) -> None:
        """End the heartbeat before its publisher goes."""
        self.heartbeat.stop()
        super().destroy_node()

    def _check_joints(self, bundle: Bundle) -> None:
        if not self.settings.robot:
            return
        robot = load_robot(self.settings.robot)
        there = robot.limits.joint_names
        for use, joints in (("state", bundle.policy.state.joints), ("action", bundle.policy.action.joints)):
            unknown = [joint for joint in joints if joint not in there]
            if unknown:
                raise UserError(
                    f"bundle {bundle.path}: {use}.joints names {', '.join(unknown)}, which {robot.path.name} does not "
                    f"have; it has {', '.join(there)}"
                )

    # requests and answers

    def _requested(self, message: JointTrajectory) -> None:
        worker, arrival = self.worker, self.steady_now()
        if worker is None:
            return
        try:
            times, positions = read_prefix(message, self._joints)
        except UserError as error:
            worker.counters["refused_requests"] += 1
            if worker.counters["refused_requests"] % 50 == 1:
                self.get_logger().error(f"plan_request {message.header.frame_id} refused: {error}")
            return
        at = self.stamps.to_steady(stamp_ns(message.header.stamp))
        worker.ask(Request(message.header.frame_id, at, times, positions, arrival))

    def _answer(self, answer: Answer) -> None:
        stamp = self.stamps.to_stamp(answer.t0)
        times = self._times if len(answer.actions) == len(self._times) else self.policy.bundle.policy.dt_s * np.arange(
            len(answer.actions)
        )  # fmt: skip
        self._chunks.publish(self._writer.write(stamp, answer.request.request_id, times, answer.actions, None))
        self._latency.publish(latency_message(answer.stage_ms))
        self.latencies.add_all(answer.stage_ms)
        if self.settings.trace:
            self._trace.publish(String(data=inference_record(answer, noise_seed(answer.request.request_id))))

    def _failed(self, text: str) -> None:
        self.heartbeat.now()
        self.log_later("error", f"inference failed:\n{text}")
        self.outbox.post(self.publish_state)

    # the pulse

    def status_word(self) -> str:
        """What the heartbeat says: `warming`, `ready` or `error: ...`."""
        worker = self.worker
        if self.fatal:
            return f"error: {self.fatal}"
        if worker is None:
            return "warming"
        if worker.broken:
            self.give_up(f"the policy failed {worker.counters['failures']} times: {worker.error}")
        busy = worker.busy_since
        limit = self.settings.stuck_after_s
        if busy is not None and self.steady_now() - busy > limit:
            self.give_up(f"an inference has taken more than {limit:g} s")
        if self.fatal or worker.error:
            return f"error: {self.fatal or worker.error}"
        return "ready" if self.lifecycle_state == "active" else "warming"

    def _beat(self, word: str) -> None:
        self._beat_header.frame_id = word
        self._beat_header.stamp = self.get_clock().now().to_msg()
        self._beats.publish(self._beat_header)

    # parameters and instruction

    def object_to(self, settings) -> str | None:
        """An instruction that the bundle's tokenizer cannot express is refused when it is set."""
        if self._tokenizer is None or not settings.instruction:
            return None
        try:
            self._tokenizer.encode(settings.instruction)
        except UserError as error:
            return str(error)
        return None

    def parameters_changed(self) -> None:
        """Apply what is live."""
        if self.worker is not None:
            self.worker.frame_wait_s = self.settings.frame_wait_s
        if self.observer is not None and not self._published_instruction:
            self._instruct(self.settings.instruction)
        self.reconsider()

    def _instructed(self, message: String) -> None:
        if message.data == self._published_instruction:
            return
        try:
            self._instruct(message.data)
            self._published_instruction = message.data
        except UserError as error:
            self.get_logger().error(f"instruction not taken: {error}")

    def _instruct(self, text: str) -> None:
        if not text or self.observer is None:
            return
        if self._tokenizer is not None:
            self._tokenizer.encode(text)
            unknown = self._tokenizer.unknown_words(text)
            if unknown:
                self.get_logger().warning(f"the policy does not know the words {', '.join(unknown)} of {text!r}")
        if text != self.observer.instruction:
            self.get_logger().info(f"instruction: {text!r}")
        self.observer.instruct(text)
        self.outbox.post(self.publish_state)

    # reports

    def regularly(self) -> None:
        """Look at the clock too: no control loop does it here."""
        super().regularly()
        self.watch_clock()

    def describe(self) -> Status:
        """The latched state."""
        instruction = self.observer.instruction if self.observer is not None else ""
        return state_status(self.status_word(), instruction, self.worker, self.latencies)

    def report(self) -> list[Status]:
        """The tasks of /diagnostics."""
        statuses = []
        policy, worker, observer = self.policy, self.worker, self.observer
        if policy is not None:
            statuses.append(model_status(policy))
        if worker is not None:
            horizon_ms = 1e3 * policy.bundle.policy.horizon * policy.bundle.policy.dt_s
            now = self.steady_now()
            statuses.append(inference_status(worker, self.latencies, horizon_ms))
            statuses.append(input_status(worker, observer.ages(now), observer.counters(), observer.flows(now),
                                         self.settings.max_input_age_s))  # fmt: skip
        return statuses


def read_prefix(message: JointTrajectory, joints: JointMap) -> tuple[np.ndarray, np.ndarray]:
    """The committed prefix of a request: times (d,) s from its stamp, positions (d, n) rad; d = 0 where none was sent.

    Raises MessageError or JointNameError.
    """
    if not message.points:
        return np.zeros(0), np.zeros((0, len(joints.joint_names)))
    order = joints.order(message.joint_names, "plan_request", more=True)
    times, positions = read_times(message), read_table(message, "positions")[:, order]
    if len(times) > 1 and np.diff(times).min() <= 0 or not all_finite(positions):
        raise MessageError("the prefix's times must increase, and its positions be finite")
    return times, positions


def _tokenizer(bundle: Bundle) -> InstructionTokenizer | None:
    instruction = bundle.policy.instruction
    return None if instruction is None else InstructionTokenizer(bundle.file(instruction.tokenizer), instruction)


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``policy_node``."""
    return run(PolicyNode, args)


if __name__ == "__main__":
    sys.exit(main())
