"""The node that plays the operator of the demo: gives instructions, looks on, drives the arm home between episodes.

It uses nothing that an operator would not have: the instruction topic, the teleop input, the published states. Only
the scene (where the cubes lie) is set through the simulated robot's own topic.
"""

import json
import threading
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.trajectory import Trajectory
from vla_runtime.nodes.messages import trajectory_to_message

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
PERIOD_S = 0.02


@dataclass(frozen=True)
class Glance:
    """What the operator sees at one moment."""

    state: str = "—"
    cause: str = "waiting for the watchdog"
    in_command: str = "none"
    rate_hz: float = 0.0
    misses: str = "0"
    stages_ms: dict[str, float] | None = None
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    robot: dict | None = None


class Conductor:
    """Operator of the simulated robot. Methods block; the node spins in a thread of its own.

    Args:
        node: an rclpy node in the demo's domain.
    """

    def __init__(self, node):
        self.node = node
        self._watchdog: DiagnosticStatus | None = None
        self._robot: dict = {}
        self._joints: tuple[tuple[str, ...], np.ndarray] | None = None
        self._arrivals: deque[float] = deque(maxlen=101)
        self._latencies: deque[dict[str, float]] = deque(maxlen=500)
        self._instruction = node.create_publisher(String, "instruction", LATCHED)
        self._episode = node.create_publisher(String, "sim/episode", LATCHED)
        self._teleop = node.create_publisher(JointTrajectory, "teleop_trajectory", 1)
        node.create_subscription(DiagnosticStatus, "watchdog/state", self._saw_watchdog, LATCHED)
        node.create_subscription(String, "sim/status", self._saw_robot, LATCHED)
        node.create_subscription(JointState, "joint_states", self._saw_joints, 1)
        node.create_subscription(JointTrajectory, "joint_trajectory", self._saw_command, 10)
        node.create_subscription(Float64MultiArray, "policy/latency", self._saw_latency, 10)
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return

    def _saw_watchdog(self, message: DiagnosticStatus) -> None:
        self._watchdog = message

    def _saw_robot(self, message: String) -> None:
        self._robot = json.loads(message.data)

    def _saw_joints(self, message: JointState) -> None:
        self._joints = tuple(message.name), np.asarray(message.position)

    def _saw_command(self, _message: JointTrajectory) -> None:
        self._arrivals.append(time.monotonic())

    def _saw_latency(self, message: Float64MultiArray) -> None:
        self._latencies.append({dim.label: value for dim, value in zip(message.layout.dim, message.data)})

    @property
    def state(self) -> str:
        """The watchdog's state, or an empty string while it has not been heard."""
        return self._watchdog.message if self._watchdog else ""

    @property
    def robot(self) -> dict:
        """The simulated robot's status."""
        return self._robot

    def glance(self) -> Glance:
        """Return what is to be shown now."""
        values = {pair.key: pair.value for pair in self._watchdog.values} if self._watchdog else {}
        now = time.monotonic()
        recent = [arrival for arrival in list(self._arrivals) if now - arrival < 2.0]
        rate = (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 2 else 0.0
        totals = [sum(v for k, v in stages.items() if k != "total") for stages in list(self._latencies)]
        return Glance(
            state=self.state or Glance.state,
            cause=values.get("cause", Glance.cause),
            in_command=values.get("in_command", "none"),
            rate_hz=rate,
            misses=values.get("deadline_misses", "0"),
            stages_ms=self._latencies[-1] if self._latencies else None,
            latency_p50_ms=float(np.percentile(totals, 50)) if totals else 0.0,
            latency_p99_ms=float(np.percentile(totals, 99)) if totals else 0.0,
            robot=self._robot or None,
        )

    def set_scene(self, seed: int, instruction: str, keep_arm: bool) -> None:
        """Lay the cubes for a seed, and give the instruction."""
        self._instruction.publish(String(data=instruction))
        self._episode.publish(String(data=json.dumps(
            {"seed": seed, "instruction": instruction, "keep_arm": keep_arm})))  # fmt: skip

    def wait_for(self, condition, timeout_s: float, tick=lambda: None) -> bool:
        """Wait until a condition holds; ``tick`` is called meanwhile. Returns whether it came to hold."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if condition():
                return True
            tick()
            time.sleep(0.02)
        return False

    def drive_to(self, pose: dict[str, float], duration_s: float, settle_s: float, tick=lambda: None) -> None:
        """Take over by teleop and drive along a smooth path to a pose, then hold it there for ``settle_s``.

        Args:
            pose: target by joint name, rad.
            duration_s: seconds of the movement (minimum-jerk).
            settle_s: seconds to hold the pose.
            tick: called about every control period.

        Raises:
            RuntimeError: no joint state has been seen, or it lacks a joint of the pose.
        """
        if self._joints is None:
            raise RuntimeError("no message on joint_states: the arm cannot be driven home")
        names, start = self._joints
        missing = set(pose) - set(names)
        if missing:
            raise RuntimeError(f"joint_states lacks {sorted(missing)}; it has {list(names)}")
        goal = np.array([pose.get(name, value) for name, value in zip(names, start)])
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < duration_s + settle_s:
            self._teleop.publish(self._glide(names, start, goal, elapsed, duration_s))
            tick()
            time.sleep(PERIOD_S)

    def _glide(self, names, start, goal, elapsed: float, duration_s: float) -> JointTrajectory:
        """A trajectory along the minimum-jerk path from ``elapsed`` to its end, where it is at rest."""
        left = max(duration_s - elapsed, 0.0)
        times = np.linspace(0.0, left, max(int(left / 0.05), 1) + 1) if left > 0.01 else np.array([0.0, 0.1])
        s = np.clip((elapsed + times) / duration_s, 0.0, 1.0)[:, None]
        path = 10 * s**3 - 15 * s**4 + 6 * s**5
        speed = (30 * s**2 - 60 * s**3 + 30 * s**4) / duration_s
        velocities = (goal - start) * speed
        velocities[-1] = 0.0
        now_ros = self.node.get_clock().now().nanoseconds
        trajectory = Trajectory(0.0, names, times, start + (goal - start) * path, velocities, "teleop", None)
        return trajectory_to_message(trajectory, now_ros)

    def close(self) -> None:
        """Leave the domain."""
        self._executor.shutdown()
        self._thread.join(2.0)
        self.node.destroy_node()
