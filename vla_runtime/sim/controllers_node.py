"""The `sim_controllers` node: any robot's trajectory controllers, without physics and pictures.

`python -m vla_runtime.sim.controllers_node --ros-args -p robot:=viperx_bimanual -p distro:=humble`

One follower (vla_runtime.sim.follower) for each controller of the robot file, on `<controller>/joint_trajectory`, or
one for all joints on `joint_trajectory` where the file names none. Joints follow their commands with a servo's lag.
Publishes `joint_states` (100 Hz) and `sim/controller` (std_msgs/String, JSON by controller, 2 Hz).
"""

import json
import sys
from array import array

import numpy as np
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.errors import UserError
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.loop import ControlLoop
from vla_runtime.nodes.process import Runnable, run_control
from vla_runtime.nodes.realtime import SWITCH_INTERVAL_S
from vla_runtime.nodes.robot_file import Robot, load_robot
from vla_runtime.sim.follower import Follower, FollowerSettings, TrajectoryMessage
from vla_runtime.sim.stream import StreamFigures, controller_report

JOINT_STATE_PERIOD_S = 0.01
TRAJECTORIES = QoSProfile(depth=20)

PARAMETERS = {
    "robot": ("so101_sim", "a file of config/robots, or a path"),
    "pose": ("", "the named pose to start in; empty: the middle of every joint's range, or 0 where that is inside"),
    "distro": ("jazzy", "whose joint_trajectory_controller is imitated: humble, jazzy, kilted or rolling"),
    "control_rate_hz": (250.0, "update rate of the controllers"),
    "servo_lag_s": (0.03, "time constant with which joints follow their commands; 0 = at once"),
    "interpolate_from_desired_state": (False, "the controllers' parameter (humble: open_loop_control)"),
    "allow_trajectory_replacement": (True, "the controllers' parameter; only rolling has it"),
    "cmd_timeout": (0.0, "the controllers' parameter, s; 0 = off"),
    "realtime_priority": (0, "SCHED_FIFO priority of the control thread; 0 = normal"),
}


class _Controller:
    """One controller with its joints."""

    def __init__(self, node: "SimControllersNode", topic: str, robot: Robot, joints: tuple[str, ...], settings):
        self.columns = [robot.limits.index(joint) for joint in joints]
        self.follower = Follower(joints, settings)
        self.stream = StreamFigures(robot.limits.select(joints))
        self.input = PolledInput(node, JointTrajectory, topic, TRAJECTORIES, node.get_logger().warning)

    def take(self, now_ns: int) -> list[str]:
        """Read what has arrived; returns the texts of refusals."""
        refusals = []
        for arrived_s, message in self.input.take():
            self.stream.arrived(arrived_s)
            refusal = self.follower.accept(TrajectoryMessage.from_ros(message), now_ns)
            if refusal:
                refusals.append(refusal.text)
        return refusals


class SimControllersNode(Runnable):
    """Controllers and ideal joints with a lag."""

    def __init__(self):
        """Raises UserError for a bad parameter."""
        super().__init__("sim_controllers")
        for name, (default, meaning) in PARAMETERS.items():
            self.declare_parameter(name, default, ParameterDescriptor(description=meaning, read_only=True))
        robot = load_robot(self._value("robot"))
        self._names = robot.limits.joint_names
        self._position = self._start(robot)
        self._velocity = np.zeros(len(self._names))
        self._last_s: float | None = None
        self._due_s = 0.0
        self._lag_s = self._value("servo_lag_s")
        settings = self._settings()
        groups = robot.controllers or {"": self._names}
        self.controllers = {
            name: _Controller(self, f"{name}/joint_trajectory" if name else "joint_trajectory", robot, joints, settings)
            for name, joints in groups.items()
        }
        for controller in self.controllers.values():
            controller.follower.activate(self._position[controller.columns])
        self._states = self.create_publisher(JointState, "joint_states", 10)
        self._message = JointState(name=list(self._names))
        self._report = self.create_publisher(String, "sim/controller", 10)
        self.create_timer(0.5, self._publish_report)
        self.loop = ControlLoop(
            self._tick,
            1.0 / settings.update_rate_hz,
            name="controllers",
            priority=self._value("realtime_priority"),
            on_error=self.get_logger().error,
        )
        self.loop.start()
        self.get_logger().info(
            f"{len(self._names)} joints of {robot.path.stem}, controllers of {settings.distro} on "
            + ", ".join(controller.input.topic for controller in self.controllers.values())
        )

    def leave(self) -> None:
        """End the control thread."""
        self.loop.stop()

    def _value(self, name: str):
        return self.get_parameter(name).value

    def _settings(self) -> FollowerSettings:
        if not self._lag_s >= 0.0:
            raise UserError(f"servo_lag_s is {self._lag_s}; it must be 0 or above")
        try:
            return FollowerSettings(
                distro=self._value("distro"),
                update_rate_hz=self._value("control_rate_hz"),
                interpolate_from_desired_state=self._value("interpolate_from_desired_state"),
                allow_trajectory_replacement=self._value("allow_trajectory_replacement"),
                cmd_timeout_s=self._value("cmd_timeout"),
            )
        except ValueError as problem:
            raise UserError(f"sim_controllers cannot start: {problem}") from problem

    def _start(self, robot: Robot) -> np.ndarray:
        limits, pose = robot.limits, self._value("pose")
        with np.errstate(invalid="ignore"):  # -inf + inf of a continuous joint, which starts at 0
            middle = np.where((limits.lower <= 0.0) & (limits.upper >= 0.0), 0.0, (limits.lower + limits.upper) / 2)
        if not pose:
            return middle
        if pose not in robot.poses:
            raise UserError(f"pose is '{pose}'; {robot.path.name} has {', '.join(robot.poses) or 'none'}")
        for joint, angle in robot.poses[pose].items():
            middle[limits.index(joint)] = angle
        return middle

    def _tick(self, now_s: float) -> None:
        now_ns = self.get_clock().now().nanoseconds
        period_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        share = 1.0 if self._lag_s == 0.0 else 1.0 - np.exp(-period_s / self._lag_s)
        for controller in self.controllers.values():
            for text in controller.take(now_ns):
                self.get_logger().error(text, throttle_duration_sec=1.0)
            columns = controller.columns
            measured = self._position[columns]
            command = controller.follower.update(now_ns, measured, self._velocity[columns], round(period_s * 1e9))
            if controller.stream.commanded(command.positions, period_s):
                moved = share * (command.positions - measured)
                self._position[columns] += moved
                self._velocity[columns] = moved / period_s if period_s > 0.0 else 0.0
        if now_s >= self._due_s - 1e-4:
            self._due_s = max(self._due_s + JOINT_STATE_PERIOD_S, now_s)
            self._publish_state(now_ns)

    def _publish_state(self, now_ns: int) -> None:
        message = self._message
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(now_ns, 10**9)
        message.position = array("d", self._position.tobytes())
        message.velocity = array("d", self._velocity.tobytes())
        self._states.publish(message)

    def _publish_report(self) -> None:
        report = {name: controller_report(c.follower, c.stream) for name, c in self.controllers.items()}
        self._report.publish(String(data=json.dumps(report)))


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM. Returns the exit code: 0 ended, 1 could not start."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return run_control(SimControllersNode, args)


if __name__ == "__main__":
    sys.exit(main())
