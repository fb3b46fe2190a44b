"""`vla record`: the bytes that DDS delivered, with the times at which DDS received them."""

import signal
import time

import pytest
from sensor_msgs.msg import Image
from std_msgs.msg import String

rosbags = pytest.importorskip("rosbags.highlevel")


def test_bag_holds_what_was_said_including_latched_and_best_effort(spawn, ros, tmp_path):
    from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data

    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    instruction = ros.publisher(String, "instruction", latched, wait_s=0)
    instruction.publish(String(data="pick up the red cube"))  # before anybody listens
    bag = tmp_path / "bag"
    recorder = spawn("vla_runtime.cli", "record", str(bag))
    camera = ros.publisher(Image, "front/image_raw", qos_profile_sensor_data)
    before_ns = time.time_ns()
    for value in range(20):
        camera.publish(Image(height=1, width=2, encoding="rgb8", step=6, data=bytes([value] * 6)))
        time.sleep(0.02)
    time.sleep(0.2)
    recorder.signal(signal.SIGINT)
    assert recorder.wait(10.0) == 0
    with rosbags.AnyReader([bag]) as reader:
        found = {}
        for connection, stamp_ns, raw in reader.messages():
            found.setdefault(connection.topic, []).append((stamp_ns, reader.deserialize(raw, connection.msgtype)))
    assert [message.data for _, message in found["/instruction"]] == ["pick up the red cube"]
    values = [int(message.data[0]) for _, message in found["/front/image_raw"]]
    assert values == sorted(values) and len(values) >= 15
    assert all(before_ns <= stamp_ns <= time.time_ns() for stamp_ns, _ in found["/front/image_raw"])


def test_existing_bag_is_not_overwritten(spawn, tmp_path):
    bag = tmp_path / "bag"
    bag.mkdir()
    recorder = spawn("vla_runtime.cli", "record", str(bag))
    assert recorder.wait(20.0) == 1
    assert f"the bag '{bag}' exists already" in recorder.log()
    assert "Traceback" not in recorder.log()
