"""Large best-effort frames for the real policy node: with the documented settings none is lost, else it says so."""

import time

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import set_stamp
from vla_runtime.toolchain.tiny_bundle import JOINTS, write_tiny_bundle

TOPICS = ("/front/image_raw", "/wrist/image_raw")


@pytest.fixture
def large_data(ros_domain, monkeypatch):
    """The settings of docs/operations.md, for everybody in the test."""
    monkeypatch.setenv("FASTDDS_BUILTIN_TRANSPORTS", "LARGE_DATA")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")


class Bench:
    """Cameras of 1280x720 at 15 Hz, joints and requests round a policy; the newest word of its task ``inputs``."""

    def __init__(self, spawn, ros, folder):
        self.ros = ros
        size = ("-p", "width:=1280", "-p", "height:=720", "-p", "fps:=15.0")
        spawn("vla_runtime.sim.pattern_cameras", "--ros-args", *size)
        bundle = write_tiny_bundle(folder / "bundle")
        wait = ("-p", "max_input_age_s:=1.0")
        self.policy = spawn("vla_runtime.nodes.policy_node", "--ros-args", "-p", f"bundle:={bundle}", *wait)
        self.joints = ros.publisher(JointState, "joint_states", 10, wait_s=0.0)
        self.requests = ros.publisher(JointTrajectory, "plan_request", 10, wait_s=0.0)
        self.tasks = {}
        ros.node.create_subscription(DiagnosticArray, "/diagnostics", self._hear, 10)
        self.asked = 0
        ros.node.create_timer(0.1, self._ask)

    def _hear(self, array):
        self.tasks |= {status.name: status for status in array.status}

    def _ask(self):
        now = self.ros.node.get_clock().now().nanoseconds
        joints = JointState(name=list(JOINTS), position=[0.1] * len(JOINTS))
        set_stamp(joints.header.stamp, now)
        self.joints.publish(joints)
        request = JointTrajectory(joint_names=list(JOINTS))
        request.header.frame_id = f"t:{self.asked}"
        set_stamp(request.header.stamp, now)
        self.requests.publish(request)
        self.asked += 1

    def inputs(self):
        """The task's message and values; None before it was heard."""
        status = self.tasks.get("policy: inputs")
        return None if status is None else (status.message, {pair.key: pair.value for pair in status.values})


def test_with_large_data_no_frame_is_lost(large_data, spawn, ros, tmp_path):
    bench = Bench(spawn, ros, tmp_path)
    ros.wait(bench.inputs, 60.0, "an active policy")
    time.sleep(2.0)  # frames that were sent while the two found each other do not count
    before = {topic: int(bench.inputs()[1][f"camera.{topic}.lost"]) for topic in TOPICS}
    time.sleep(4.0)
    _, values = bench.inputs()  # its message speaks of ten seconds, the first frames among them
    for topic in TOPICS:
        assert int(values[f"camera.{topic}.lost"]) == before[topic]
        assert 1.0 < float(values[f"camera.{topic}.rate_hz"]) < 18.0  # a busy machine draws them more slowly


def test_without_it_the_lost_frames_are_told_by_topic(spawn, ros, tmp_path):
    bench = Bench(spawn, ros, tmp_path)

    def told():
        said = bench.tasks.get("policy: lifecycle")
        refusal = said.message if said is not None else ""
        return "frames lost on the way" in refusal or (bench.inputs() and "frames are lost" in bench.inputs()[0])

    ros.wait(told, 60.0, "a word about lost frames")
    text = bench.tasks["policy: lifecycle"].message + (bench.inputs() or ("", {}))[0]
    assert any(topic in text for topic in TOPICS)
    assert "docs/troubleshooting.md" in text
