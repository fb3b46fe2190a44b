"""What a node does with input that cannot be right: it says what, which value and what to do, and does not start."""

import pytest
import yaml
from rclpy.lifecycle import TransitionCallbackReturn as Result

from vla_runtime.nodes.executor_node import ExecutorNode
from vla_runtime.nodes.policy_node import PolicyNode
from vla_runtime.nodes.watchdog_node import WatchdogNode
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


def arguments(**values):
    pairs = {"autostart": "false", **values}
    return ["--ros-args", *(part for name, value in pairs.items() for part in ("-p", f"{name}:={value}"))]


def refused(node, capfd):
    """The node's reason; it is unconfigured, and the log has the reason without a traceback."""
    assert node.trigger_configure() == Result.FAILURE
    assert node.lifecycle_state == "unconfigured"
    log = capfd.readouterr().err
    assert node.refusal in log
    assert "Traceback" not in log
    return node.refusal


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("bundle"))


def spoiled(bundle, tmp_path, change):
    for file in bundle.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    policy = yaml.safe_load((tmp_path / "policy.yaml").read_text())
    change(policy)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))
    return tmp_path


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ({}, ["bundle is empty", "policy.yaml"]),
        ({"bundle": "/nowhere"}, ["bundle /nowhere: no such directory"]),
        ({"bundle": "/nowhere", "threads": 900}, ["threads = 900 is outside its range (1 to 64)"]),
        ({"bundle": "/nowhere", "image_transport": "theora"}, ["image_transport", "raw, compressed"]),
    ],
)
def test_a_policy_without_a_bundle_or_with_bad_parameters(lonely, capfd, values, texts):
    reason = refused(lonely(PolicyNode, *arguments(**values)), capfd)
    assert all(text in reason for text in texts), reason


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (lambda p: p.update(horizon=40), ["horizon", "40", "50"]),
        (lambda p: p.update(horizont=40), ["horizont", "unknown field"]),
        (lambda p: p["files"].update({"vision.onnx": "0" * 64}), ["vision.onnx", "has changed"]),
        (lambda p: p["action"]["joints"].pop(), ["joints"]),
    ],
)
def test_a_malformed_bundle(lonely, capfd, bundle, tmp_path, change, texts):
    path = spoiled(bundle, tmp_path, change)
    reason = refused(lonely(PolicyNode, *arguments(bundle=path)), capfd)
    assert all(text in reason for text in texts), reason


def test_an_engine_that_is_not_there(lonely, capfd, bundle):
    assert "warp" in refused(lonely(PolicyNode, *arguments(bundle=bundle, engine="warp")), capfd)


def test_a_joint_that_the_robot_does_not_have(lonely, capfd, bundle):
    reason = refused(lonely(PolicyNode, *arguments(bundle=bundle, robot="ur5e")), capfd)
    assert "state.joints names shoulder_pan, shoulder_lift, elbow_flex" in reason
    assert "ur5e.yaml does not have" in reason


def test_cameras_that_are_not_there_leave_the_policy_inactive(lonely, capfd, bundle):
    node = lonely(PolicyNode, *arguments(bundle=bundle, robot="so101_sim"))
    assert node.trigger_configure() == Result.SUCCESS
    assert node.status_word() == "warming"
    assert node.trigger_activate() == Result.FAILURE
    assert node.lifecycle_state == "inactive"
    assert "no picture yet from camera 'front' on topic '/front/image_raw' (0 publishers" in node.refusal
    assert "no picture yet from camera 'wrist'" in node.refusal
    assert "'/joint_states' (0 publishers)" in node.refusal


def test_an_instruction_that_the_bundle_cannot_express(lonely, capfd, bundle):
    text = "pick up " + "the red cube " * 9
    reason = refused(lonely(PolicyNode, *arguments(bundle=bundle, instruction=f"'{text}'")), capfd)
    assert "tokens, this policy reads 16; shorten it" in reason


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "robot is empty"),
        ({"robot": "so102"}, "config/robots has only"),
        (
            {"robot": "so101_sim", "stream_deadline_s": 99.0},
            "stream_deadline_s = 99 is outside its range (0.01 to 1 s)",
        ),
        ({"robot": "so101_sim", "fallback": "jump"}, "no fallback planner 'jump'; there are: hold, retreat, stop"),
        ({"robot": "so101_sim", "fallback": "retreat", "retreat_poses": "['attic']"}, "no pose 'attic'"),
        ({"robot": "so101_sim", "answer_deadline_s": 0.9}, "is above policy_deadline_s"),
    ],
)
def test_a_watchdog_with_bad_parameters(lonely, capfd, values, text):
    assert text in refused(lonely(WatchdogNode, *arguments(**values)), capfd)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "robot is empty"),
        ({"robot": "so101_sim", "window_s": 0.03}, "must be at least two control periods"),
        ({"robot": "so101_sim", "blend": "mix"}, "blend = 'mix' is not one of"),
    ],
)
def test_an_executor_with_bad_parameters(lonely, capfd, values, text):
    assert text in refused(lonely(ExecutorNode, *arguments(**values)), capfd)


@pytest.mark.parametrize("node_type", [WatchdogNode, ExecutorNode])
def test_a_control_node_goes_through_its_states_twice(lonely, node_type):
    node = lonely(node_type, *arguments(robot="so101_sim", realtime_priority=0))
    for _ in range(2):
        assert node.trigger_configure() == Result.SUCCESS
        assert node.trigger_activate() == Result.SUCCESS
        assert node.loop is not None
        node.publish_state()
        node.publish_diagnostics()
        assert node.trigger_deactivate() == Result.SUCCESS
        assert node.loop is None
        assert node.trigger_cleanup() == Result.SUCCESS
