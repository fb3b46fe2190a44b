import math

import numpy as np
import pytest

from vla_runtime.control.limits import Limits, LimitsError

JOINT = {"lower": -1.0, "upper": 1.5, "velocity": 2.0, "acceleration": 8.0, "jerk": 80.0}
URDF = """<robot name="r">
  <joint name="pan" type="revolute"><limit lower="-1.9" upper="1.9" velocity="3" effort="10"/></joint>
  <joint name="wheel" type="continuous"><limit velocity="5" effort="1"/></joint>
  <joint name="slide" type="prismatic"><limit upper="0.3" velocity="0.2" effort="1"/></joint>
  <joint name="fixed" type="fixed"/>
</robot>"""


def test_from_a_dict_in_its_order():
    limits = Limits.from_dict({"joints": {"b": JOINT, "a": {**JOINT, "upper": 1, "discrete": True}}})
    assert limits.joint_names == ("b", "a")
    assert limits.upper.tolist() == [1.5, 1.0]
    assert limits.discrete.tolist() == [False, True]
    assert len(limits) == 2


def test_discrete_joints_may_be_named_beside():
    assert Limits.from_dict({"a": JOINT, "g": JOINT}, discrete=["g"]).discrete.tolist() == [False, True]
    with pytest.raises(LimitsError, match="'grip'"):
        Limits.from_dict({"a": JOINT}, discrete=["grip"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower": 2.0}, "elbow: lower 2.0 must be below upper 1.5"),
        ({"velocity": 0.0}, "elbow: velocity must be positive and finite, got 0.0"),
        ({"jerk": math.inf}, "elbow: jerk must be positive and finite, got inf"),
        ({"acceleration": "fast"}, "elbow: acceleration must be a number, got 'fast'"),
        ({"acceleration": True}, "elbow: acceleration must be a number, got True"),
        ({"lower": math.nan}, "elbow: lower must be a number, got nan"),
        ({"discrete": "false"}, "elbow: discrete must be true or false, got 'false'"),
        ({"continuous": 1}, "elbow: continuous must be true or false, got 1"),
        ({"velocty": 1.0}, "elbow: unknown key 'velocty'; did you mean 'velocity'"),
    ],
)
def test_wrong_limits_are_named(change, message):
    with pytest.raises(LimitsError, match=message.replace("[", r"\[")):
        Limits.from_dict({"elbow": {**JOINT, **change}})


@pytest.mark.parametrize("key", list(JOINT))
def test_a_missing_limit_is_named(key):
    entry = {k: v for k, v in JOINT.items() if k != key}
    with pytest.raises(LimitsError, match=f"elbow: {key} is missing"):
        Limits.from_dict({"elbow": entry})


@pytest.mark.parametrize("data", [{}, {"joints": {}}, {"joints": None}, [], None, {"elbow": 3}])
def test_what_is_no_mapping_of_joints_is_refused(data):
    with pytest.raises(LimitsError):
        Limits.from_dict(data)


def test_a_continuous_joint_needs_no_position_limits():
    entry = {k: v for k, v in JOINT.items() if k not in ("lower", "upper")}
    limits = Limits.from_dict({"wheel": {**entry, "continuous": True}})
    assert (limits.lower[0], limits.upper[0]) == (-math.inf, math.inf)


def test_from_yaml_and_its_errors(tmp_path):
    path = tmp_path / "robot.yaml"
    path.write_text("joints:\n  pan: {lower: -1, upper: 1, velocity: 2, acceleration: 8, jerk: 80}\n", encoding="utf-8")
    assert Limits.from_yaml(path).joint_names == ("pan",)
    path.write_text("joints: {pan: [", encoding="utf-8")
    with pytest.raises(LimitsError, match="robot.yaml is not YAML"):
        Limits.from_yaml(path)
    path.write_text("joints:\n  pan: {lower: -1}\n", encoding="utf-8")
    with pytest.raises(LimitsError, match="robot.yaml: pan: upper is missing"):
        Limits.from_yaml(path)
    with pytest.raises(LimitsError, match="nowhere.yaml"):
        Limits.from_yaml(tmp_path / "nowhere.yaml")


def test_from_urdf():
    limits = Limits.from_urdf(
        URDF, ["slide", "pan", "wheel"], acceleration=4.0, jerk={"slide": 1, "pan": 2, "wheel": 3}
    )
    assert limits.joint_names == ("slide", "pan", "wheel")
    assert limits.lower.tolist() == [0.0, -1.9, -math.inf]
    assert limits.velocity.tolist() == [0.2, 3.0, 5.0]
    assert limits.jerk.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        (URDF, ["pann"], "no joint 'pann' in the URDF; did you mean 'pan'"),
        (URDF, ["fixed"], "fixed: the URDF gives it no <limit>"),
        ("<robot", ["pan"], "not XML"),
    ],
)
def test_urdf_errors(text, names, message):
    with pytest.raises(LimitsError, match=message):
        Limits.from_urdf(text, names, acceleration=4.0, jerk=40.0)


def test_a_urdf_lacks_acceleration_and_jerk():
    with pytest.raises(LimitsError, match="pan: jerk is missing"):
        Limits.from_urdf(URDF, ["pan"], acceleration=4.0, jerk={})


def test_selection_by_name_and_scaling():
    limits = Limits.from_dict({"a": JOINT, "b": {**JOINT, "upper": 2.5}, "c": JOINT}, discrete=["b"])
    chosen = limits.select(["b", "a"])
    assert chosen.upper.tolist() == [2.5, 1.5]
    assert chosen.discrete.tolist() == [True, False]
    with pytest.raises(LimitsError, match="'d'; there are: a, b, c"):
        limits.select(["d"])
    slow = limits.scaled(velocity=0.5)
    assert slow.velocity.tolist() == [1.0] * 3
    assert slow.acceleration.tolist() == [8.0] * 3


def test_they_cannot_be_changed_behind_ones_back():
    source = np.array([1.0])
    limits = Limits(("a",), [-1.0], source, [1.0], [1.0], [1.0])
    source[0] = 7.0
    assert limits.upper[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        limits.upper[0] = 3.0


@pytest.mark.parametrize(
    ("names", "message"), [((), "no joints"), (("a", "a"), "named twice"), (("a", "b"), "2 joints need 2 values")]
)
def test_names_and_widths_must_agree(names, message):
    with pytest.raises(LimitsError, match=message):
        Limits(names, [-1.0], [1.0], [1.0], [1.0], [1.0])
