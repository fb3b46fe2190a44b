"""Commands for a robot with several trajectory controllers: each gets the part that concerns its joints.

A joint trajectory controller refuses a message that names joints of another. So the whole command goes out on
``joint_trajectory``, for the executor and for recordings, and its parts on ``<controller>/joint_trajectory``, all with
one stamp: the arms move as one plan.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rclpy.duration import Duration
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.control.trajectory import Trajectory
from vla_runtime.nodes.diagnostics import Status
from vla_runtime.nodes.publishers import REMEMBERED, Ears, PublisherWatch, listen_for_another
from vla_runtime.nodes.qos import LATEST
from vla_runtime.nodes.robot_file import Robot
from vla_runtime.nodes.trajectory_cdr import TrajectoryEncoder

if TYPE_CHECKING:
    from vla_runtime.nodes.control_node import ControlNode


class CommandOutput:
    """Publishes commands, whole and in parts."""

    def __init__(self, node: "ControlNode", robot: Robot, *, immediate: bool):
        names = robot.limits.joint_names
        self._node, self._stamps, self._immediate = node, node.stamps, immediate
        self._whole = node.speak(JointTrajectory, "joint_trajectory", LATEST)
        self._encoder = TrajectoryEncoder(names)
        self._parts = []
        topics = ["joint_trajectory"]
        for controller, joints in robot.controllers.items():
            topic = f"{controller}/joint_trajectory"
            publisher = node.speak(JointTrajectory, topic, LATEST)
            self._parts.append((publisher, TrajectoryEncoder(joints), [names.index(joint) for joint in joints]))
            topics.append(topic)
        self.rivals = [PublisherWatch(node, topic) for topic in topics]
        self._ears: Ears | None = None
        self._said: deque[bytes] = deque(maxlen=REMEMBERED)

    def listen(self) -> None:
        """Begin to listen for others; raise TransitionRefusedError while somebody commands one of the controllers."""
        self._ears = listen_for_another(self._node, self.rivals, self._said)

    def listen_again(self) -> None:
        """Listen once more, without waiting to hear anybody."""
        if self._ears is None:
            self._ears = Ears(self._node, self.rivals, self._said)

    @property
    def crowded(self) -> bool:
        """Whether there are other publishers on one of the topics, silent ones too."""
        return any(watch.count() > 1 for watch in self.rivals)

    def rival(self) -> PublisherWatch | None:
        """Where somebody else has commanded since the last call; None too when nobody listens any more."""
        ears = self._ears
        return None if ears is None else ears.heard()

    def stop_listening(self) -> None:
        """Others would have been heard by now, or this node no longer wants to command."""
        ears, self._ears = self._ears, None
        if ears is not None:
            ears.close()

    def ready(self, trajectory: Trajectory) -> Callable[[], None]:
        """Return what sends a command, all work on it done. The parts go first: they are what moves."""
        # Read once: a stamp is converted from the steady clock, and two readings differ by microseconds.
        stamp = 0 if self._immediate else self._stamps.to_stamp(trajectory.start)
        times, positions, velocities = trajectory.times, trajectory.positions, trajectory.velocities
        messages = [
            (publisher, encoder.encode(stamp, trajectory.plan_id, times, positions[:, columns], velocities[:, columns]))
            for publisher, encoder, columns in self._parts
        ]
        messages.append((self._whole, self._encoder.encode(stamp, trajectory.plan_id, times, positions, velocities)))

        self._said.extend(message for _, message in messages)

        def send() -> None:
            for publisher, message in messages:
                publisher.publish(message)

        return send

    def wait_for_all_acked(self, timeout: Duration) -> None:
        """Wait until the last command has left the house."""
        for publisher in [part[0] for part in self._parts] + [self._whole]:
            publisher.wait_for_all_acked(timeout)

    def statuses(self) -> list[Status]:
        """Who publishes on each topic, for /diagnostics."""
        first, *others = [watch.status() for watch in self.rivals]
        return [first, *(replace(status, name=f"command topic {status.values['topic']}") for status in others)]
