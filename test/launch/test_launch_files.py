"""The launch files, loaded, wherever `launch_ros` can be imported. (test/system/test_launch_live.py runs them.)"""

from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not on PyPI: source a ROS installation to run these tests")
pytest.importorskip("launch_xml")

from launch.actions import DeclareLaunchArgument  # noqa: E402
from launch.launch_description_sources import AnyLaunchDescriptionSource  # noqa: E402

from launch import LaunchContext  # noqa: E402
from vla_runtime.errors import UserError  # noqa: E402
from vla_runtime.toolchain.launching import CALM_S, Backoff, bag_storage, pairs, parameters, truth  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for path in (ROOT / "launch").iterdir() if ".launch." in path.name)


def arguments(path: Path) -> dict[str, DeclareLaunchArgument]:
    source = AnyLaunchDescriptionSource(str(path))
    description = source.get_launch_description(LaunchContext())
    return {argument.name: argument for argument in description.get_launch_arguments()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_argument_says_what_it_is(path):
    declared = arguments(path)
    assert declared
    for name, argument in declared.items():
        assert len(argument.description) > 15, name
        assert argument.description.rstrip().endswith((".", "]")), name


def test_the_xml_variant_has_arguments_of_the_python_one():
    assert set(arguments(ROOT / "launch/robot.launch.xml")) <= set(arguments(ROOT / "launch/robot.launch.py"))


def test_back_off_doubles_up_to_the_longest_and_calms_down():
    clock = [0.0]
    backoff = Backoff(1.0, 10.0, lambda: clock[0])
    delays = []
    for _ in range(6):
        backoff.started()
        clock[0] += 2.0
        delays.append(backoff.delay_s())
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    backoff.started()
    clock[0] += CALM_S
    assert backoff.delay_s() == 1.0


def test_camera_topics_are_pairs():
    assert pairs("front=/a/image_raw, wrist=/b", "cameras") == {"front": "/a/image_raw", "wrist": "/b"}
    with pytest.raises(UserError, match="cameras: 'front' is not of the form"):
        pairs("front", "cameras")


def test_words_for_truth():
    assert truth("True", "respawn")
    assert not truth("off", "respawn")
    with pytest.raises(UserError, match="respawn: 'maybe'"):
        truth("maybe", "respawn")


def test_what_is_not_given_does_not_override_a_file(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("/**: {ros__parameters: {robot: ur5e}}\n")
    default = ROOT / "config/watchdog.yaml"
    assert parameters(default, str(own), {"robot": "", "autostart": True}) == [
        str(default), str(own), {"autostart": True},
    ]  # fmt: skip
    with pytest.raises(UserError, match="there is no file '/nowhere.yaml'"):
        parameters(default, "/nowhere.yaml", {})


def test_the_player_is_told_the_format_of_a_bag(tmp_path):
    bag = tmp_path / "bag"
    bag.mkdir()
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: {storage_identifier: mcap}\n")
    (tmp_path / "one.db3").touch()
    (tmp_path / "other").mkdir()
    assert bag_storage(str(bag)) == ["--storage", "mcap"]
    assert bag_storage(str(tmp_path / "one.db3")) == ["--storage", "sqlite3"]
    assert bag_storage(str(tmp_path / "other")) == []
    with pytest.raises(UserError, match="there is no bag '/nowhere'"):
        bag_storage("/nowhere")
