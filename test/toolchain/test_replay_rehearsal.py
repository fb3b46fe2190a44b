"""What would have happened: on the actions of a recording, with other settings, and on a real bag of somebody else."""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.replay import command
from vla_runtime.toolchain.replay.bagmap import BagMap, read_bag_map

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("VLA_SHARED_DATA", ROOT.parent / "shared" / "data"))
G1 = SHARED / "g1_pick_bottle"
G1_MAP = ROOT / "config" / "bags" / "g1_pick_bottle.yaml"


def replay(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


@pytest.fixture(scope="module")
def bag(tmp_path_factory) -> Path:
    """Three seconds of a two-joint arm with a gripper at 50 Hz, and the actions it took."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_KILTED)
    kind = "sensor_msgs/msg/JointState"
    header, stamp = store.types["std_msgs/msg/Header"], store.types["builtin_interfaces/msg/Time"]
    names, none = ["one", "two", "grip"], np.zeros(0)
    path = tmp_path_factory.mktemp("bags") / "arm"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topics = {topic: writer.add_connection(topic, kind, typestore=store) for topic in ("/joint_states", "/action")}
        for i in range(150):
            t_ns = 1_700_000_000_000_000_000 + i * 20_000_000
            for topic, connection in topics.items():
                t = i * 0.02 + (0.02 if topic == "/action" else 0.0)
                position = np.array([0.3 * np.sin(2 * t), 0.2 * np.cos(1.5 * t), float(t > 1.5)])
                message = store.types[kind](
                    header=header(stamp=stamp(sec=t_ns // 10**9, nanosec=t_ns % 10**9), frame_id=""),
                    name=names, position=position, velocity=none, effort=none,
                )  # fmt: skip
                writer.write(connection, t_ns, store.serialize_cdr(message, kind))
    return path


@pytest.fixture(scope="module")
def mapping(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("maps") / "arm.yaml"
    path.write_text(
        "actions: /action\njoints: {one: shoulder, two: elbow, grip: gripper}\ndiscrete: [gripper]\n"
        "dt_s: 0.02\nhorizon: 50\nlatency_s: 0.1\n"
    )
    return path


def figures(tmp_path: Path, *words: str) -> dict:
    out = tmp_path / "figures.json"
    assert replay(*words, "--json", str(out)) == 0
    return json.loads(out.read_text())


def test_the_recorded_actions_are_driven(bag, mapping, tmp_path):
    result = figures(tmp_path, str(bag), "--map", str(mapping))
    assert result["time_in_state_s"]["NOMINAL"] > 2.0
    assert result["commands"] > 120
    assert result["speed_over_limit"] <= 1e-9
    assert result["observation_to_answer_ms"]["p50"] == pytest.approx(110, abs=15)


def test_the_same_arguments_give_the_same_run(bag, mapping, tmp_path):
    runs = [figures(tmp_path, str(bag), "--map", str(mapping)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_another_k_asks_more_often(bag, mapping, tmp_path):
    few = figures(tmp_path, str(bag), "--map", str(mapping), "--set", "k=25")
    many = figures(tmp_path, str(bag), "--map", str(mapping), "--set", "k=8")
    assert many["requests"] > 1.5 * few["requests"]
    assert few["set"] == {"k": 25}


def test_a_latency_longer_than_the_policy_deadline_is_a_fallback(bag, mapping, tmp_path):
    result = figures(tmp_path, str(bag), "--map", str(mapping), "--latency", "0.7", "--set", "k=8")
    assert "FALLBACK" in result["time_in_state_s"] or result["time_in_state_s"].get("NOMINAL", 0) < 1.0


def test_what_came_out_is_a_bag_that_can_be_shown(bag, mapping, tmp_path):
    from vla_runtime.toolchain.run_log import read_run

    out = tmp_path / "again"
    assert replay(str(bag), "--map", str(mapping), "--out", str(out)) == 0
    run = read_run(out)
    assert run.commands[0].joint_names == ("shoulder", "elbow", "gripper")
    assert len(run.commands) > 120
    assert {status.state for status in run.watchdog} >= {"WARMUP", "NOMINAL"}
    assert run.chunks
    assert (run.commands[-1].velocities[-1] == 0).all()
    with pytest.raises(UserError, match="exists already"):
        replay(str(bag), "--map", str(mapping), "--out", str(out))


@pytest.mark.skipif(not G1.is_dir(), reason=f"the recorded Unitree G1 bag is not at {G1} (set VLA_SHARED_DATA)")
def test_a_real_recording_runs_through(tmp_path):
    out = tmp_path / "g1"
    result = figures(tmp_path, str(G1), "--map", str(G1_MAP), "--out", str(out))
    assert result["ticks"] > 240
    assert result["commands"] > 200
    assert result["time_in_state_s"]["NOMINAL"] > 2.0
    assert result["speed_over_limit"] <= 1e-9

    from vla_runtime.toolchain.report.page import page
    from vla_runtime.toolchain.run_log import read_run

    run = read_run(out)
    assert len(run.commands[0].joint_names) == 26
    assert run.images
    text = page(run, "g1")
    assert "Pick up the yellow bottle" in text
    assert text.count("data:image/jpeg") >= 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--set", "kk=3"], "neither executor nor watchdog has this parameter"),
        (["--set", "k"], "expected name=value"),
        (["--set", "k=0"], "k = 0 is outside its range"),
        ([], "has no traces"),
        (["--rehearse"], "has no answers of a policy"),
    ],
)
def test_mistakes_are_named(bag, words, complaint):
    with pytest.raises(UserError, match=complaint):
        replay(str(bag), *words)


def test_a_folder_that_is_no_bag(tmp_path):
    with pytest.raises(UserError, match="no metadata.yaml"):
        replay(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("joint_state: /a", "did you mean 'joint_states'"),
        ("dt_s: fast", "dt_s must be a float, got 'fast'"),
        ("horizon: 1", "horizon at least 2"),
        ("- a", "expected lines"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_mapping_that_is_wrong(tmp_path, text, complaint):
    path = tmp_path / "map.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_bag_map(path)


def test_a_topic_that_is_not_in_the_bag(bag, tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actions: /nothing\n")
    with pytest.raises(UserError, match="has no topic /nothing; it has: /action, /joint_states"):
        replay(str(bag), "--map", str(path))


def test_a_joint_that_is_not_in_the_bag(bag, tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actions: /action\njoints: {three: elbow}\n")
    with pytest.raises(UserError, match="no joint three; it has: one, two, grip"):
        replay(str(bag), "--map", str(path))


def test_an_empty_line_of_a_mapping_keeps_its_default(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actions: /action\n")
    assert read_bag_map(path) == BagMap(actions="/action")
