"""The `sim_robot` node: a simulated arm behind the topics of a real one.

Hears `joint_trajectory` as joint_trajectory_controller would (vla_runtime.sim.follower), and says `joint_states`
(100 Hz), `front/image_raw` and `wrist/image_raw` (30 fps, rgb8, stamped with the simulated instant). Besides, what only
a simulation has: `sim/episode` (std_msgs/String, latched, JSON {"seed": int, "instruction": str, "keep_arm": bool})
lays the cubes, `~/reset` (std_srvs/Trigger) lays them again as they were and brings the arm home, `sim/fault` (JSON
{"camera": NAME or "none"}) freezes a camera; `sim/status` (JSON, latched) says how the episode stands, `sim/controller`
(JSON, 2 Hz) what the controller has counted.
"""

import json
import sys
from array import array
from pathlib import Path

import numpy as np
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.limits import LimitsError
from vla_runtime.errors import UserError
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.loop import ControlLoop
from vla_runtime.nodes.process import Runnable, run_control
from vla_runtime.nodes.qos import LATCHED
from vla_runtime.nodes.realtime import SWITCH_INTERVAL_S
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.sim.cameras import Cameras
from vla_runtime.sim.follower import FollowerSettings, TrajectoryMessage
from vla_runtime.sim.robot import JointReading, SimRobot

JOINT_STATE_PERIOD_S = 0.01
STATUS_PERIOD_S = 0.5
LOOK_PERIOD_S = 0.1
# The controller keeps only the newest message; here each is counted, so a stall of this process must not lose any.
TRAJECTORIES = QoSProfile(depth=20)

PARAMETERS = {
    "seed": (0, "draws the first episode's scene"),
    "instruction": ("", "the first episode's instruction; empty: drawn from the seed"),
    "robot": ("so101_sim", "limits: a file of config/robots without .yaml, or a path"),
    "distro": ("jazzy", "whose joint_trajectory_controller is imitated: humble, jazzy, kilted or rolling"),
    "control_rate_hz": (250.0, "update rate of the controller"),
    "interpolate_from_desired_state": (False, "the controller's parameter (humble: open_loop_control)"),
    "allow_trajectory_replacement": (True, "the controller's parameter; only rolling has it"),
    "allow_partial_joints_goal": (False, "the controller's parameter"),
    "cmd_timeout": (0.0, "the controller's parameter, s; 0 = off"),
    "cameras": (True, "whether to render pictures"),
    "camera_fps": (30.0, "pictures per second of each camera"),
    "camera_width": (96, "pixels"),
    "camera_height": (96, "pixels"),
    "realtime_priority": (0, "SCHED_FIFO priority of the control thread; 0 = normal"),
    "log_path": ("", "an .npz written at the end: commanded and measured joints, arrival of every message"),
}


class SimRobotNode(Runnable):
    """Glue between the simulated robot's threads and ROS."""

    def __init__(self):
        """Raises UserError for a bad parameter and where this machine cannot render."""
        super().__init__("sim_robot")
        for name, (default, meaning) in PARAMETERS.items():
            self.declare_parameter(name, default, ParameterDescriptor(description=meaning, read_only=True))
        rate_hz = self._value("control_rate_hz")
        self.robot = self._make_robot(rate_hz)
        self._states = self.create_publisher(JointState, "joint_states", 10)
        self._status = self.create_publisher(String, "sim/status", LATCHED)
        self._controller = self.create_publisher(String, "sim/controller", 10)
        self._images = {c: self.create_publisher(Image, f"{c}/image_raw", qos_profile_sensor_data)
                        for c in ("front", "wrist")}  # fmt: skip
        self._problem = ""
        self._state_message = JointState(name=list(self.robot.joint_names))
        self._state_due_s = 0.0
        self._commands = PolledInput(self, JointTrajectory, "joint_trajectory", TRAJECTORIES, self.get_logger().warning)
        self.create_subscription(String, "sim/episode", self._begin_episode, LATCHED)
        self.create_subscription(String, "sim/fault", self._misbehave, LATCHED)
        self.create_service(Trigger, "~/reset", self._reset)
        self.create_timer(STATUS_PERIOD_S, self._publish_figures)
        self.create_timer(LOOK_PERIOD_S, self._look)
        self.loop = ControlLoop(
            self._tick,
            1.0 / rate_hz,
            name="controller",
            priority=self._value("realtime_priority"),
            on_error=self.get_logger().error,
        )
        size = (self._value("camera_width"), self._value("camera_height"))
        self.cameras = Cameras(self.robot, self._publish_image, self._images, self._value("camera_fps"), size)
        if self._value("cameras"):
            self.cameras.start()
        self.loop.start()
        self._publish_status()
        self.get_logger().info(
            f"simulated arm with the controller of {self._value('distro')} at {rate_hz:g} Hz, "
            f"{'two cameras' if self._value('cameras') else 'no cameras'}; {self.robot.arm.scene.instruction}"
        )

    def leave(self) -> None:
        """End the threads and write the log."""
        self.loop.stop()
        self.cameras.stop()
        if self.robot.ring is not None:
            self.robot.ring.save(Path(self._value("log_path")), self.robot.joint_names)

    def _value(self, name: str):
        return self.get_parameter(name).value

    def _make_robot(self, rate_hz: float) -> SimRobot:
        limits = load_robot(self._value("robot")).limits
        if not self._value("camera_fps") > 0 or min(self._value("camera_width"), self._value("camera_height")) < 8:
            raise UserError("camera_fps must be above 0, camera_width and camera_height at least 8")
        try:
            settings = FollowerSettings(
                distro=self._value("distro"),
                update_rate_hz=rate_hz,
                interpolate_from_desired_state=self._value("interpolate_from_desired_state"),
                allow_trajectory_replacement=self._value("allow_trajectory_replacement"),
                allow_partial_joints_goal=self._value("allow_partial_joints_goal"),
                cmd_timeout_s=self._value("cmd_timeout"),
            )
            seed, instruction = self._value("seed"), self._value("instruction") or None
            return SimRobot(limits, settings, seed, instruction, keep_run=bool(self._value("log_path")))
        except (LimitsError, ValueError) as problem:
            raise UserError(f"sim_robot cannot start: {problem}") from problem

    # the control thread

    def _tick(self, now_s: float) -> None:
        now_ns = self.get_clock().now().nanoseconds
        for arrived_s, message in self._commands.take():
            refusal = self.robot.receive(TrajectoryMessage.from_ros(message), arrived_s, now_ns)
            if refusal:
                self.get_logger().error(refusal, throttle_duration_sec=1.0)
        due = now_s >= self._state_due_s - 1e-4
        reading = self.robot.tick(now_s, now_ns, log=due)
        if due:
            self._state_due_s = max(self._state_due_s + JOINT_STATE_PERIOD_S, now_s)
            self._publish_state(reading)

    def _publish_state(self, reading: JointReading) -> None:
        message = self._state_message
        _set_stamp(message, reading.stamp_ns)
        message.position = array("d", reading.position.tobytes())
        message.velocity = array("d", reading.velocity.tobytes())
        message.effort = array("d", reading.effort.tobytes())
        self._states.publish(message)

    # the cameras' thread

    def _publish_image(self, camera: str, stamp_ns: int, picture: np.ndarray) -> None:
        height, width, _ = picture.shape
        message = Image(height=height, width=width, encoding="rgb8", step=3 * width)
        _set_stamp(message, stamp_ns)
        message.header.frame_id = f"{camera}_camera"
        message.data = array("B", picture.tobytes())
        self._images[camera].publish(message)

    # the executor's thread

    def _begin_episode(self, message: String) -> None:
        try:
            wish = json.loads(message.data)
            seed, instruction = wish["seed"], wish.get("instruction")
            if type(seed) is not int or seed < 0 or not isinstance(instruction, str | None):
                raise ValueError("seed must be an integer from 0 on, instruction a text")
            self.robot.begin_episode(seed, instruction or None, bool(wish.get("keep_arm", False)))
            self._problem = ""
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            self._problem = f"sim/episode was not understood: {problem!r} in {message.data[:200]!r}"
            self.get_logger().error(self._problem)
        self._publish_status()

    def _misbehave(self, message: String) -> None:
        wish = json.loads(message.data).get("camera")
        if wish is not None:
            self.cameras.frozen = {wish} - {"none"}

    def _reset(self, _request, response):
        scene = self.robot.arm.scene
        self.robot.begin_episode(scene.seed, scene.instruction)
        self._publish_status()
        response.success = True
        response.message = f"episode {self.robot.episode}: seed {scene.seed}, {scene.instruction}; the arm is at home"
        return response

    def _look(self) -> None:
        if self.robot.see():
            self._publish_status()

    def _publish_figures(self) -> None:
        self._publish_status()
        self._controller.publish(String(data=json.dumps(self.robot.controller())))

    def _publish_status(self) -> None:
        status = {**self.robot.status(), "problem": self._problem, "frames": self.cameras.frames}
        self._status.publish(String(data=json.dumps(status)))


def _set_stamp(message, stamp_ns: int) -> None:
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM. Returns the exit code: 0 ended, 1 could not start."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return run_control(SimRobotNode, args)


if __name__ == "__main__":
    sys.exit(main())
