"""The files that an integrator starts from: robots, controllers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from vla_runtime.control.brake import brake
from vla_runtime.control.limits import Limits
from vla_runtime.control.watchdog_states import State

CONFIG = Path(__file__).resolve().parent.parent / "config"
ROBOTS = sorted((CONFIG / "robots").glob("*.yaml"))
CONTROLLERS = sorted((CONFIG / "controllers").glob("*.yaml"))


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", ROBOTS, ids=lambda path: path.stem)
class TestRobot:
    def test_loads_and_names_its_sources(self, path):
        limits = Limits.from_yaml(path)
        assert len(limits) >= 6
        if path.stem != "so101_sim":
            assert len(load(path)["sources"]) >= 3

    def test_poses_are_inside_the_limits_and_name_no_strangers(self, path):
        limits = Limits.from_yaml(path)
        for pose in load(path).get("named_poses", {}).values():
            for joint, position in pose.items():
                i = limits.index(joint)
                assert limits.lower[i] <= position <= limits.upper[i], joint

    def test_every_arm_joint_is_in_every_pose(self, path):
        limits = Limits.from_yaml(path)
        arm = {name for name, discrete in zip(limits.joint_names, limits.discrete) if not discrete}
        for name, pose in load(path).get("named_poses", {}).items():
            assert arm <= set(pose), name

    def test_controllers_share_the_joints_between_them(self, path):
        limits = Limits.from_yaml(path)
        controllers = load(path).get("controllers")
        if controllers is not None:
            assert [joint for joints in controllers.values() for joint in joints] == list(limits.joint_names)

    def test_stops_from_full_speed_in_the_middle_of_the_travel(self, path):
        """Limits under which a brake needs seconds, or none can be found, are a slip of the pen."""
        limits = Limits.from_yaml(path)
        lower, upper = np.maximum(limits.lower, -math.tau), np.minimum(limits.upper, math.tau)
        zero = np.zeros(len(limits))
        times = brake((lower + upper) / 2, limits.velocity, zero, limits, step_s=0.02).times
        assert 0.01 < times[-1] < 2.0

    def test_speeds_and_accelerations_are_of_this_world(self, path):
        limits = Limits.from_yaml(path)
        assert (limits.velocity <= 2 * math.tau).all()
        assert (limits.acceleration / limits.velocity >= 0.5).all()
        assert (limits.jerk / limits.acceleration >= 5).all()


def test_two_arms_have_fourteen_joints_in_two_controllers():
    robot = load(CONFIG / "robots" / "viperx_bimanual.yaml")
    assert [len(joints) for joints in robot["controllers"].values()] == [7, 7]


@pytest.mark.parametrize("path", CONTROLLERS, ids=lambda path: path.stem)
class TestController:
    def settings(self, path):
        return load(path)["arm_controller"]["ros__parameters"]

    def test_refuses_what_we_never_send(self, path):
        settings = self.settings(path)
        assert settings["allow_nonzero_velocity_at_trajectory_end"] is False
        assert settings["allow_partial_joints_goal"] is False

    def test_goes_on_from_its_last_command(self, path):
        settings = self.settings(path)
        assert settings["open_loop_control" if path.stem == "humble" else "interpolate_from_desired_state"] is True

    def test_does_not_splice(self, path):
        assert self.settings(path).get("allow_trajectory_replacement", "absent") is (
            False if path.stem == "rolling" else "absent"
        )

    def test_judges_every_joint_it_drives(self, path):
        settings = self.settings(path)
        judged = {name for name, value in settings["constraints"].items() if isinstance(value, dict)}
        assert judged == set(settings["joints"])


def test_there_is_a_file_for_every_distro():
    assert {path.stem for path in CONTROLLERS} == {"humble", "jazzy", "kilted", "rolling"}


class TestFoxgloveLayout:
    layout = json.loads((CONFIG / "foxglove" / "vla_runtime.json").read_text())

    def leaves(self, node) -> list[str]:
        if isinstance(node, str):
            return [node]
        assert node["direction"] in ("row", "column")
        return self.leaves(node["first"]) + self.leaves(node["second"])

    def test_every_panel_is_placed_and_configured(self):
        placed = self.leaves(self.layout["layout"])
        assert len(set(placed)) == len(placed)
        assert set(placed) == set(self.layout["configById"])

    def test_it_knows_every_state_of_the_watchdog(self):
        rules = self.layout["configById"]["Indicator!who"]["rules"]
        assert {rule["rawValue"] for rule in rules} == {str(state) for state in State}

    def test_it_calls_the_watchdogs_services_only(self):
        services = {p["serviceName"] for p in self.layout["configById"].values() if "serviceName" in p}
        assert services == {f"/watchdog/{name}" for name in ("hold", "release", "reset")}
