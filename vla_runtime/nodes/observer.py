"""A policy's inputs from topics: cameras and joint states, read when an observation is wanted."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState

from vla_runtime.nodes.camera_flow import CameraFlow
from vla_runtime.nodes.clock import StampClock
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.joint_map import JointReader
from vla_runtime.nodes.messages import stamp_ns
from vla_runtime.nodes.qos import CAMERA, JOINT_STATES
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.images import decode_compressed, decode_image
from vla_runtime.policy.observation import NotReady, ObservationAssembler
from vla_runtime.policy.policy import Observation

TRANSPORTS = {"raw": ("image_raw", Image), "compressed": ("image_raw/compressed", CompressedImage)}


def decode(message: Image | CompressedImage):
    """(h, w, 3) uint8 RGB of either kind of message. Raises ImageError naming what is not supported."""
    if isinstance(message, CompressedImage):
        return decode_compressed(message.format, message.data)
    return decode_image(
        message.height, message.width, message.encoding, bool(message.is_bigendian), message.step, message.data
    )


class Observer:
    """Subscribes to the cameras that the bundle names and to joint_states; ``observe`` is for one thread.

    A frame costs nothing here unless it is used: DDS keeps the newest one of each camera.
    """

    def __init__(
        self,
        node: Node,
        model: PolicyModel,
        stamps: StampClock,
        report: Callable[[str], None],
        *,
        transport: str,
        max_age_s: float,
    ):
        self._node = node
        self._stamps = stamps
        self._assembler = ObservationAssembler(model, max_age_s=max_age_s)
        self._reader = JointReader(model.state.joints)
        self._stamp_of: dict[str, int] = {}
        self._repeated: Counter[str] = Counter()
        suffix, kind = TRANSPORTS[transport]
        self.kind = kind
        self.cameras = {
            camera.name: PolledInput(node, kind, f"{camera.name}/{suffix}", CAMERA, report) for camera in model.cameras
        }
        self._flows = {name: CameraFlow(camera.subscription) for name, camera in self.cameras.items()}
        self.joints = PolledInput(node, JointState, "joint_states", JOINT_STATES, report)

    def observe(self, now: float) -> Observation | NotReady:
        """An observation that is complete, young and new, or why there is none."""
        self.read()
        return self._assembler.take(now)

    def read(self) -> None:
        """Take what has arrived."""
        for name, camera in self.cameras.items():
            taken = camera.take_as_received()
            if not taken:
                continue
            message, info = taken[-1]
            self._flows[name].took(info)
            stamp = stamp_ns(message.header.stamp)
            if stamp == self._stamp_of.get(name):
                # Two conversions of one stamp differ by microseconds: a frozen camera is known by the stamp itself.
                self._repeated[name] += 1
                continue
            self._stamp_of[name] = stamp
            self._assembler.offer_image(name, self._stamps.to_steady(stamp), partial(decode, message))
        for _, message in self.joints.take():
            sample = self._reader.read(message, self._stamps.to_steady(stamp_ns(message.header.stamp)))
            if sample is not None:
                self._assembler.offer_state(sample.t, self._reader.joint_names, sample.position)

    def missing(self, now: float) -> str:
        """What has never arrived, with its topic and what there is instead; "" when all is there."""
        self.read()
        seen = self._assembler.ages(now)
        faults = [
            f"no picture yet from camera '{name}' on topic '{camera.topic}' "
            f"({self._node.count_publishers(camera.topic)} publishers{self._losses(name, now)}{self._alternatives()})"
            for name, camera in self.cameras.items()
            if name not in seen
        ]
        if "state" not in seen:
            count = self._node.count_publishers(self.joints.topic)
            faults.append(self._reader.fault or f"nothing yet on topic '{self.joints.topic}' ({count} publishers)")
        return "; ".join(faults)

    def ages(self, now: float) -> dict[str, float]:
        """Age in seconds of each input as it was last read."""
        return self._assembler.ages(now)

    def counters(self) -> dict[str, int]:
        """Counts of what was taken, waited for and refused."""
        return {**self._assembler.counters, **{f"same_stamp.{name}": n for name, n in self._repeated.items()}}

    def flows(self, now: float) -> dict[str, dict]:
        """How each camera's frames come, by topic: see :class:`CameraFlow`."""
        return {camera.topic: self._flows[name].figures(now) for name, camera in self.cameras.items()}

    def instruct(self, text: str) -> None:
        """Use this instruction from the next observation on."""
        self._assembler.offer_instruction(text)

    @property
    def instruction(self) -> str:
        """The instruction in use."""
        return self._assembler.instruction

    def forget(self) -> None:
        """Drop all samples; what comes next counts as new."""
        self._assembler.clear()
        self._stamp_of.clear()

    def destroy(self) -> None:
        """Unsubscribe from everything."""
        self._flows.clear()
        for each in (*self.cameras.values(), self.joints):
            each.destroy(self._node)

    def _losses(self, name: str, now: float) -> str:
        lost = self._flows[name].figures(now)["lost"]
        return f"; {lost} frames lost on the way: see 'Pictures are lost' in docs/troubleshooting.md" if lost else ""

    def _alternatives(self) -> str:
        wanted = f"sensor_msgs/msg/{self.kind.__name__}"
        there = sorted(topic for topic, types in self._node.get_topic_names_and_types() if wanted in types)
        there = [topic for topic in there if self._node.count_publishers(topic)]
        return f"; {self.kind.__name__} topics in this domain: {', '.join(there)}" if there else ""
