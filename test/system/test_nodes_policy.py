"""The policy node as a process, with the test as its cameras, joints and executor."""

import io
import time
from array import array

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from PIL import Image as Picture
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64MultiArray, Header, String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_runtime.nodes.messages import set_stamp, stamp_ns
from vla_runtime.toolchain.tiny_bundle import JOINTS, write_tiny_bundle

POLICY = "vla_runtime.nodes.policy_node"
SIZE = 48
CAMERA = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class Bench:
    """Publishes pictures and joints, each with the stamp that a test wants; asks; reads answers."""

    def __init__(self, ros, kind=Image, qos=CAMERA):
        suffix = "image_raw" if kind is Image else "image_raw/compressed"
        self.ros, self.kind = ros, kind
        self.cameras = {
            name: ros.publisher(kind, f"{name}/{suffix}", qos, wait_s=0.0) for name in ("front", "wrist")
        }  # fmt: skip
        self.joints = ros.publisher(JointState, "joint_states", 10, wait_s=0.0)
        self.requests = ros.publisher(JointTrajectory, "plan_request", 10, wait_s=0.0)
        self.chunks = ros.listen(JointTrajectory, "action_chunk")
        self.heartbeats = ros.listen(Header, "heartbeat")
        self.states = ros.latched(DiagnosticStatus, "policy/state")
        self.diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
        self.encoding = "rgb8"
        self.running = {"front", "wrist"}
        self.timer = ros.node.create_timer(0.033, self.publish)

    def now(self):
        return self.ros.node.get_clock().now().nanoseconds

    def publish(self):
        now = self.now()
        for name in self.running:
            message = self.picture()
            set_stamp(message.header.stamp, now)
            self.cameras[name].publish(message)
        joints = JointState(name=list(reversed(JOINTS)), position=[0.1 * i for i in range(len(JOINTS))])
        set_stamp(joints.header.stamp, now)
        self.joints.publish(joints)

    def picture(self):
        pixels = np.full((SIZE, SIZE, 3), 99, np.uint8)
        if self.kind is CompressedImage:
            data = io.BytesIO()
            Picture.fromarray(pixels).save(data, "JPEG")
            return CompressedImage(format="rgb8; jpeg compressed bgr8", data=array("B", data.getvalue()))
        message = Image(height=SIZE, width=SIZE, encoding=self.encoding, step=3 * SIZE)
        message.data = array("B", pixels.tobytes())
        return message

    def ready(self):
        self.ros.wait(lambda: self.heartbeats and self.heartbeats[-1][1].frame_id == "ready", 40.0, "a ready policy")

    def ask(self, n, points=()):
        request = JointTrajectory(joint_names=list(JOINTS))
        request.header.frame_id = f"t:{n}"
        set_stamp(request.header.stamp, self.now())
        for i, positions in enumerate(points):
            point = JointTrajectoryPoint(positions=positions)
            set_stamp(point.time_from_start, i * 20_000_000)
            request.points.append(point)
        self.requests.publish(request)

    def answer(self, n):
        def found():
            return [message for _, message in self.chunks if message.header.frame_id == f"t:{n}"]

        self.ros.wait(found, 10.0, f"the answer to request {n}")
        return found()[0]

    def status(self, task):
        found = [s for _, array in self.diagnostics[-6:] for s in array.status if s.name == f"policy: {task}"]
        return found[-1] if found else None


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("bundle"))


def arguments(bundle, **values):
    given = {"bundle": bundle, "robot": "so101_sim", "max_input_age_s": 1.0, "frame_wait_s": 0.3, **values}
    return ["--ros-args", *(part for name, value in given.items() for part in ("-p", f"{name}:={value}"))]


def test_from_pictures_to_chunks(spawn, ros, bundle):
    bench = Bench(ros)
    latencies = ros.listen(Float64MultiArray, "policy/latency")
    policy = spawn(POLICY, *arguments(bundle))
    bench.ready()

    begin = bench.now()
    bench.ask(1)
    chunk = bench.answer(1)
    assert list(chunk.joint_names) == list(JOINTS)
    assert len(chunk.points) == 50
    assert [stamp_ns(p.time_from_start) for p in chunk.points[:3]] == [0, 20_000_000, 40_000_000]
    assert begin - 1_000_000_000 < stamp_ns(chunk.header.stamp) < bench.now()
    # The joints came in another order than the bundle's.
    assert chunk.points[0].positions[-1] == pytest.approx(0.0, abs=0.05)
    assert chunk.points[0].positions[0] == pytest.approx(0.5, abs=0.05)
    ros.wait(lambda: latencies, 5.0, "a latency")
    labels = [dim.label for dim in latencies[0][1].layout.dim]
    assert {"vision", "backbone", "action", "total"} <= set(labels)

    # Long enough that the observation may be some frames younger than the request, on a busy machine.
    committed = [[0.01 * i] * len(JOINTS) for i in range(12)]
    bench.ask(2, committed)
    repeated = np.array([p.positions for p in bench.answer(2).points])
    steps = np.diff(repeated[:4], axis=0)
    assert np.allclose(steps, 0.01, atol=1e-6), "the chunk begins on the line that was committed"

    instruction = ros.publisher(String, "instruction", QoSProfile(depth=1), wait_s=10.0)
    instruction.publish(String(data="lift the blue cube"))
    ros.wait(lambda: "lift the blue cube" in str(bench.states[-1][1].values), 5.0, "the instruction")
    instruction.publish(String(data="lift " + "the blue cube " * 9))
    ros.wait(lambda: "instruction not taken" in policy.log(), 5.0, "a refusal")
    assert "lift the blue cube" in str(bench.states[-1][1].values)


def test_a_slow_camera_is_waited_for_and_a_dead_one_gives_no_answer(spawn, ros, bundle):
    bench = Bench(ros)
    spawn(POLICY, *arguments(bundle))
    bench.ready()
    bench.ask(1)
    first = bench.answer(1)
    bench.running = {"front"}
    time.sleep(0.2)  # what was on the way has arrived

    def complains():
        return bench.status("inputs") is not None and bench.status("inputs").level != b"\x00"

    for n in range(2, 30):  # a picture that was still on the way may serve the first of them
        bench.ask(n)
        time.sleep(0.4)
        if complains():
            break
    assert complains(), "nothing was said about the dead camera"
    assert "wrist" in bench.status("inputs").message
    bench.running = {"front", "wrist"}
    bench.ask(40)
    later = bench.answer(40)
    stamps = {stamp_ns(m.header.stamp) for _, m in bench.chunks}
    assert len(stamps) == len(bench.chunks), "no observation is used twice"
    assert stamp_ns(later.header.stamp) > stamp_ns(first.header.stamp)


def test_compressed_pictures(spawn, ros, bundle):
    bench = Bench(ros, CompressedImage)
    spawn(POLICY, *arguments(bundle, image_transport="compressed"))
    bench.ready()
    bench.ask(1)
    assert len(bench.answer(1).points) == 50


def test_what_cannot_be_read_is_named(spawn, ros, bundle):
    bench = Bench(ros)
    bench.encoding = "bayer_rggb8"
    policy = spawn(POLICY, *arguments(bundle))
    bench.ready()
    bench.ask(1)
    ros.wait(lambda: bench.status("inputs") and "bayer_rggb8" in bench.status("inputs").message, 15.0, "the encoding")
    assert not bench.chunks

    ros.publisher(JointTrajectory, "plan_request", CAMERA, wait_s=0.0)
    text = "a publisher of topic '/plan_request' (probe) offers incompatible QoS"
    ros.wait(lambda: text in policy.log(), 15.0, "the topic's name in the log")
    ros.wait(lambda: text in bench.status("lifecycle").message, 15.0, "the topic's name in /diagnostics")
