"""`vla record`: the bytes that DDS delivered, with the times at which DDS received them."""

import shutil
import signal
import time
from types import SimpleNamespace

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


def test_a_disk_that_fills_up_ends_the_bag_where_it_can_still_be_read(ros, tmp_path, monkeypatch):
    from vla_runtime.errors import UserError
    from vla_runtime.toolchain import record

    disk = {"free": 1e9}
    monkeypatch.setattr(record.shutil, "disk_usage", lambda path: SimpleNamespace(**disk))
    bag, speaker = tmp_path / "bag", ros.publisher(String, "speech", 10, wait_s=0)
    recorder = record.Recorder(ros.node, bag, "speech")
    ros.wait(lambda: recorder.poll() or speaker.get_subscription_count(), 10.0, "the recorder")
    speaker.publish(String(data="before"))
    ros.wait(lambda: recorder.poll() or recorder.counts["/speech"], 10.0, "the word")
    disk["free"] = 1e8
    with pytest.raises(UserError, match="only 100 MB are free on the disk of '.*bag', and 200 MB are kept free"):
        ros.wait(recorder.poll, 10.0)
    recorder.close()
    with rosbags.AnyReader([bag]) as reader:
        assert [connection.topic for connection, _, _ in reader.messages()] == ["/speech"]
    with pytest.raises(UserError, match="make room"):
        record.Recorder(ros.node, tmp_path / "another")


def test_a_bag_that_is_removed_meanwhile_is_told_at_once(spawn, ros, tmp_path):
    ros.publisher(String, "speech", 10, wait_s=0)
    bag = tmp_path / "bag"
    recorder = spawn("vla_runtime.cli", "record", str(bag))
    ros.wait(bag.exists, 20.0, "the bag")
    shutil.rmtree(bag)
    assert recorder.wait(20.0) == 1
    assert f"the recording ends here: [Errno 2] No such file or directory: '{bag}'" in recorder.log()
    assert "Traceback" not in recorder.log()


def test_existing_bag_is_not_overwritten(spawn, tmp_path):
    bag = tmp_path / "bag"
    bag.mkdir()
    recorder = spawn("vla_runtime.cli", "record", str(bag))
    assert recorder.wait(20.0) == 1
    assert f"the bag '{bag}' exists already" in recorder.log()
    assert "Traceback" not in recorder.log()
