"""The node that plays the operator of the demo: gives instructions, looks on, drives the arm home between episodes.

It uses nothing that an operator would not have: the instruction topic, the teleop input, the monitor's board. Only the
scene (where the cubes lie) is set through the simulated robot's own topics.
"""

import json
import time
from collections.abc import Callable

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.messages import TrajectoryWriter
from vla_runtime.nodes.qos import LATCHED, LATEST
from vla_runtime.toolchain.monitor.board import Board, View
from vla_runtime.toolchain.monitor.listener import Listener

PERIOD_S = 0.02
GLIDE_STEP_S = 0.05


class Conductor:
    """Operator of the simulated robot. Everything runs in the caller's thread: what waits also listens.

    Uses the domain of the environment (ROS_DOMAIN_ID).
    """

    def __init__(self) -> None:
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node("vla_demo", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._board = Board()
        self._listener = Listener(self._board, command_topic="joint_trajectory")
        self.robot: dict = {}  # the simulated robot's status
        self._joints: tuple[tuple[str, ...], np.ndarray] | None = None
        self._home: np.ndarray | None = None
        self._instruction = self._node.create_publisher(String, "instruction", LATCHED)
        self._episode = self._node.create_publisher(String, "sim/episode", LATCHED)
        self._fault = self._node.create_publisher(String, "sim/fault", LATCHED)
        self._teleop = self._node.create_publisher(JointTrajectory, "teleop_trajectory", LATEST)
        self._node.create_subscription(String, "sim/status", self._saw_robot, LATCHED)
        self._joint_states = PolledInput(self._node, JointState, "joint_states", QoSProfile(depth=1), None)

    def _saw_robot(self, message: String) -> None:
        self.robot = json.loads(message.data)

    def _look_at_joints(self) -> None:
        newest = self._joint_states.newest()
        if newest is None:
            return
        self._joints = tuple(newest[1].name), np.asarray(newest[1].position)
        if self._home is None:
            self._home = self._joints[1]

    def view(self) -> View:
        """Return what the monitor would show now."""
        return self._board.view(time.monotonic(), self._listener.ros_now())

    def set_scene(self, seed: int, instruction: str) -> None:
        """Lay the cubes for a seed, the arm staying where it is, and give the instruction."""
        self._instruction.publish(String(data=instruction))
        wish = {"seed": seed, "instruction": instruction, "keep_arm": True}
        self._episode.publish(String(data=json.dumps(wish)))

    def tell_fault(self, part: str, fault: str) -> None:
        """Let a part of the simulation misbehave: ("policy", "nan"), ("camera", "front"), or "none" to behave again."""
        self._fault.publish(String(data=json.dumps({part: fault})))

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, tick: Callable[[], None]) -> bool:
        """Listen until a condition holds; ``tick`` is called meanwhile. Returns whether it came to hold."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if condition():
                return True
            tick()
            self._listen(PERIOD_S)
        return False

    def drive_home(self, duration_s: float, settle_s: float, tick: Callable[[], None]) -> None:
        """Take over by teleop, glide to the pose in which the arm was first seen, and stay there for ``settle_s``.

        Args:
            duration_s: seconds of the movement (minimum-jerk).
            settle_s: seconds to hold the pose.
            tick: called about every control period.

        Raises:
            RuntimeError: no joint state has been seen.
        """
        if self._joints is None or self._home is None:
            raise RuntimeError("no message on joint_states: the arm cannot be driven home")
        names, start = self._joints
        writer = TrajectoryWriter(names)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < duration_s + settle_s:
            times, positions, velocities = glide(start, self._home, elapsed, duration_s)
            now_ns = self._node.get_clock().now().nanoseconds
            self._teleop.publish(writer.write(now_ns, "home", times, positions, velocities))
            tick()
            self._listen(PERIOD_S)

    def _listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._listener.listen(seconds / 2)
        while (left := end - time.monotonic()) > 0:
            self._executor.spin_once(left)
        self._look_at_joints()

    def close(self) -> None:
        """Leave the domain."""
        self._listener.close()
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()


def glide(start: np.ndarray, goal: np.ndarray, elapsed: float, duration_s: float):
    """Return the rest of a minimum-jerk movement.

    Args:
        start, goal: (n,) rad.
        elapsed: s since the movement began; beyond ``duration_s`` it stands at the goal.
        duration_s: s of the whole movement.

    Returns:
        times (m,) s from now, positions (m, n) rad, velocities (m, n) rad/s; the last velocity is 0.
    """
    left = duration_s - elapsed
    times = np.linspace(0.0, left, int(left / GLIDE_STEP_S) + 2) if left > GLIDE_STEP_S else np.array([0.0, 0.1])
    s = np.clip((elapsed + times) / duration_s, 0.0, 1.0)[:, None]
    positions = start + (goal - start) * (10 * s**3 - 15 * s**4 + 6 * s**5)
    velocities = (goal - start) * (30 * s**2 - 60 * s**3 + 30 * s**4) / duration_s
    velocities[-1] = 0.0
    return times, positions, velocities
