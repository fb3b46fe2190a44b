"""Poses as actions: six joints of a small arm, solved by inverse kinematics and checked by forward kinematics."""

import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation

from vla_runtime.policy.bundle import load_bundle, sha256_of
from vla_runtime.policy.bundle_model import ActionModel
from vla_runtime.policy.chain import Chain, Pose
from vla_runtime.policy.errors import BundleError, UnreachableError
from vla_runtime.policy.policy import Observation, Prefix, load_policy
from vla_runtime.policy.space_choice import choose_space

pytest.importorskip("pinocchio", reason="Pinocchio is not installed: pip install 'vla_runtime[kinematics]'")

ARM = ("shoulder_pan", "shoulder_lift", "elbow_flex", "forearm_roll", "wrist_flex", "wrist_roll")
JOINTS = (*ARM, "gripper")
# axis, offset from the joint before (m), limits (rad)
LINKS = (
    ("0 0 1", "0 0 0.1", 2.8),
    ("0 1 0", "0 0 0.1", 1.9),
    ("0 1 0", "0 0 0.3", 2.4),
    ("0 0 1", "0 0 0.1", 2.8),
    ("0 1 0", "0 0 0.15", 2.0),
    ("0 0 1", "0 0 0.08", 3.0),
)
REST = np.array([0.2, 0.4, 0.9, 0.1, 0.7, -0.3])


def arm_urdf(continuous: str = "") -> bytes:
    """An arm on a table: world, base_link, six joints, tool; and a gripper's jaw, with a mesh that is not there."""
    parts = ['<joint name="bench" type="fixed"><parent link="world"/><child link="base_link"/>'
             '<origin xyz="0.4 -0.2 0.7" rpy="0 0 1.2"/></joint>']  # fmt: skip
    parent = "base_link"
    for name, (axis, offset, limit) in zip(ARM, LINKS):
        kind = "continuous" if name == continuous else "revolute"
        bounds = "" if name == continuous else f'<limit lower="-{limit}" upper="{limit}" effort="9" velocity="3"/>'
        parts.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{name}_link"/>'
            f'<origin xyz="{offset}" rpy="0 0 0"/><axis xyz="{axis}"/>{bounds}</joint>'
        )
        parent = f"{name}_link"
    parts.append(f'<joint name="tip" type="fixed"><parent link="{parent}"/><child link="tool"/>'
                 '<origin xyz="0 0 0.12" rpy="0 0 0"/></joint>')  # fmt: skip
    parts.append(f'<joint name="gripper" type="revolute"><parent link="{parent}"/><child link="jaw"/>'
                 '<axis xyz="1 0 0"/><limit lower="0" upper="1" effort="1" velocity="1"/></joint>')  # fmt: skip
    mesh = '<visual><geometry><mesh filename="package://nowhere/jaw.stl"/></geometry></visual>'
    links = [f'<link name="{name}"/>' for name in ("world", "base_link", *(f"{j}_link" for j in ARM), "tool")]
    return f'<robot name="arm">{"".join(links)}<link name="jaw">{mesh}</link>{"".join(parts)}</robot>'.encode()


def by_hand(angles: np.ndarray) -> tuple[np.ndarray, Rotation]:
    """The tool seen from base_link, multiplied out without Pinocchio."""
    position, rotation = np.zeros(3), Rotation.identity()
    for (axis, offset, _), angle in zip(LINKS, angles):
        position = position + rotation.apply([float(x) for x in offset.split()])
        rotation = rotation * Rotation.from_rotvec(angle * np.array([float(x) for x in axis.split()]))
    return position + rotation.apply([0.0, 0.0, 0.12]), rotation


def chain(**changes) -> Chain:
    return Chain(**{"urdf": arm_urdf(), "frame": "tool", "joints": ARM, "base": "base_link", **changes})


@pytest.mark.parametrize("seed", range(20))
def test_a_pose_is_where_the_links_put_it_and_is_found_again(seed):
    arm, rng = chain(), np.random.default_rng(seed)
    angles = REST + rng.uniform(-0.5, 0.5, 6)
    pose, (position, rotation) = arm.pose(angles), by_hand(angles)
    assert pose.position == pytest.approx(position, abs=1e-9)
    assert (pose.rotation * rotation.inv()).magnitude() < 1e-9
    found = arm.solve(pose, angles + rng.uniform(-0.15, 0.15, 6))
    position_found, rotation_found = by_hand(found)
    assert np.abs(position_found - position).max() < 1e-5
    assert (rotation_found * rotation.inv()).magnitude() < 1e-4
    assert np.abs(found - angles).max() < 1e-2  # the same elbow: the branch that the arm is in


def test_what_lies_out_of_reach_is_refused_with_what_is_missing():
    arm = chain()
    with pytest.raises(UnreachableError, match=r"'tool' cannot reach \[1.5, 0.0, 0.3\] m.* m and .* rad are missing"):
        arm.solve(Pose(np.array([1.5, 0.0, 0.3]), None), REST)


def test_limits_of_the_bundle_are_kept_and_named():
    goal = chain().pose(np.array([0.8, *REST[1:]]))
    narrow = chain(limits={"shoulder_pan": (-0.5, 0.5)})
    with pytest.raises(UnreachableError, match="at their limits: .*shoulder_pan"):
        narrow.solve(goal, REST)
    wide = chain(limits={"shoulder_pan": (-9.0, 0.81)})
    assert wide.upper[0] == 0.81 and wide.lower[0] == -2.8
    assert wide.solve(goal, REST)[0] == pytest.approx(0.8, abs=1e-5)


def test_a_position_alone_leaves_the_rest_to_the_arm():
    arm = chain()
    goal = arm.pose(REST).position + [0.05, -0.08, 0.03]
    found = arm.solve(Pose(goal, None), REST)
    assert by_hand(found)[0] == pytest.approx(goal, abs=1e-5)


def test_at_a_singularity_the_steps_stay_small():
    """A stretched arm cannot come nearer along its own line at first: no joint may be thrown about for it."""
    arm, straight = chain(), np.zeros(6)
    top = arm.pose(straight)
    found = arm.solve(Pose(top.position - [0.0, 0.0, 0.001], top.rotation), straight + 0.01)
    assert by_hand(found)[0][2] == pytest.approx(top.position[2] - 0.001, abs=0.002)
    assert np.abs(found).max() < 0.6


def test_a_joint_that_turns_for_ever_has_one_angle():
    arm = chain(urdf=arm_urdf("wrist_roll"))
    goal = arm.pose(np.array([*REST[:5], 7.0]))
    assert arm.solve(goal, np.array([*REST[:5], 6.9]))[5] == pytest.approx(7.0, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"frame": "hand"}, "no link 'hand'; there are: .*tool"),
        ({"joints": ARM[:5]}, "moved against base_link by the joints .*wrist_roll"),
        ({"joints": JOINTS}, "the bundle names .*gripper"),
        ({"urdf": b"<mujoco/>"}, "first element is <mujoco>"),
        ({"urdf": b"no xml"}, "cannot be read"),
        ({"limits": {"elbow_flex": (3.0, 4.0)}}, "'elbow_flex'.*no room"),
    ],
)
def test_a_robot_that_does_not_fit_is_named(changes, text):
    with pytest.raises(BundleError, match=text):
        chain(**changes)


@pytest.fixture(scope="module")
def arm_bundle(tiny_bundle, tmp_path_factory):
    """The function that writes a bundle of poses: the tiny one's stages, an arm of six joints and perhaps a gripper."""

    def write(space: str, joints=JOINTS, std=0.5, **effector):
        root = tmp_path_factory.mktemp("poses")
        for file in tiny_bundle.iterdir():
            if file.suffix != ".md":
                (root / file.name).write_bytes(file.read_bytes())
        (root / "arm.urdf").write_bytes(arm_urdf())
        policy = yaml.safe_load((root / "policy.yaml").read_text())
        model = {"frame": "tool", "base": "base_link", "joints": list(ARM), **effector}
        width = (3 if model.get("rotation") == "none" else 6) + len(joints) - 6
        policy["action"] = {
            "space": space, "joints": list(joints), "discrete": list(joints[6:]), "urdf": "arm.urdf",
            "end_effectors": [model], "mean": [0.0] * width, "std": [std] * width,
        }  # fmt: skip
        policy["state"] = {"joints": list(joints), "mean": [0.0] * len(joints), "std": [0.5] * len(joints)}
        policy["limits"] = {}
        policy["files"]["arm.urdf"] = sha256_of(root / "arm.urdf")
        (root / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))
        return load_bundle(root, verify=len(joints) == 6)  # the stages' width is six

    return write


FORMS = [
    (space, form)
    for space in ("ee_pose", "ee_delta", "ee_step")
    for form in ({}, {"rotation": "rpy"}, {"rotation": "none"}, {"axes": "tool"})
]


@pytest.mark.parametrize(("space", "form"), FORMS)
def test_joints_to_poses_and_back(arm_bundle, space, form):
    """A plan of joints, told as poses, comes back as the same way of the tool, and as the same joints where unique."""
    made = choose_space(arm_bundle(space, **form))
    state = np.append(REST, 0.3)
    ahead = np.linspace(0.0, 1.0, 12)[:, None]
    plan = state + 0.3 * np.sin(ahead * np.array([1.0, 2.0, 1.5, 0.7, 1.1, 2.2, 1.0]))
    rows = made.from_radians(plan, state)
    assert rows.shape == (12, 4 if form.get("rotation") == "none" else 7)
    again = made.to_radians(rows, state)
    for row, wanted in zip(again, plan):
        assert by_hand(row[:6])[0] == pytest.approx(by_hand(wanted[:6])[0], abs=2e-5)
    if form.get("rotation") != "none":
        assert again == pytest.approx(plan, abs=2e-3)
    assert again[:, 6] == pytest.approx(plan[:, 6], abs=1e-6)


def raw(made, values: list[list[float]]) -> np.ndarray:
    """Normalised rows of values in metres and radians."""
    return made._normalised(np.array(values, float))


def test_changes_count_from_the_observed_pose_or_one_after_the_other(arm_bundle):
    state = np.append(REST, 0.3)
    start, turned = by_hand(REST)
    up = [[0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.5]] * 3
    for space, heights in (("ee_delta", [0.01] * 3), ("ee_step", [0.01, 0.02, 0.03])):
        made = choose_space(arm_bundle(space))
        for row, height in zip(made.to_radians(raw(made, up), state), heights):
            position, rotation = by_hand(row[:6])
            assert position == pytest.approx(start + [0.0, 0.0, height], abs=1e-5)
            assert (rotation * turned.inv()).magnitude() < 1e-3
            assert row[6] == pytest.approx(0.5)
    made = choose_space(arm_bundle("ee_delta", axes="tool"))
    reached = by_hand(made.to_radians(raw(made, up[:1]), state)[0, :6])[0]
    assert reached == pytest.approx(start + turned.apply([0.0, 0.0, 0.01]), abs=1e-5)


def test_what_is_committed_comes_back_unchanged_and_the_plan_goes_on_from_there(arm_bundle):
    made, state = choose_space(arm_bundle("ee_pose")), np.append(REST, 0.3)
    plan = state + np.linspace(0.0, 0.2, 8)[:, None]
    known = plan[:3] + 1e-4
    found = made.to_radians(made.from_radians(plan, state), state, known)
    assert np.array_equal(found[:3], known)
    assert found[3:] == pytest.approx(plan[3:], abs=1e-3)


def test_a_plan_out_of_reach_is_refused_whole_and_names_the_row(arm_bundle):
    made, state = choose_space(arm_bundle("ee_delta")), np.append(REST, 0.3)
    rows = [[0.0] * 7, [0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]]
    with pytest.raises(UnreachableError, match="row 1 of the plan: 'tool' cannot reach"):
        made.to_radians(raw(made, rows), state)


def test_a_policy_of_poses_answers_in_joints(arm_bundle):
    """Through the stages: the chunk is in radians, follows the committed prefix, and its tool moves as it says."""
    policy = load_policy(arm_bundle("ee_delta", ARM, std=0.01), allow_unproven=True)
    policy.warm_up()
    images = {name: np.full((32, 32, 3), 90, np.uint8) for name in ("front", "wrist")}
    observation = Observation(0.0, images, REST, "pick up the red cube")
    output = policy.infer(observation, seed=1)
    assert output.actions.shape == (50, 6) and output.stage_ms["kinematics"] > 0.0
    assert 0.0 < np.abs(output.actions - REST).max() < 0.5
    prefix = REST + 0.001 * np.arange(4)[:, None]
    continued = policy.infer(observation, Prefix(prefix), 4, seed=1)
    assert np.array_equal(continued.actions[:4], prefix)
    assert np.abs(continued.actions[4] - prefix[3]).max() < 0.2


def test_a_policy_that_asks_for_too_much_warms_up_and_is_refused_plan_by_plan(arm_bundle):
    policy = load_policy(arm_bundle("ee_pose", ARM, std=50.0), allow_unproven=True)
    policy.warm_up()
    images = {name: np.full((32, 32, 3), 90, np.uint8) for name in ("front", "wrist")}
    with pytest.raises(UnreachableError, match="row 0 of the plan"):
        policy.infer(Observation(0.0, images, REST, "pick up the red cube"), seed=1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"space": "joint_position"}, "need both, the other spaces neither"),
        ({"urdf": None}, "need both"),
        ({"mean": [0.0] * 6}, "mean has 6 values for 7 numbers"),
        ({"joints": list(ARM)}, "mean has 7 values for 6"),
        ({"discrete": ["wrist_roll"]}, r"end_effectors name \['wrist_roll'\]"),
        ({"end_effectors": [{"frame": "tool", "joints": list(ARM), "axes": "tool", "rotation": "none"}]}, "axes is"),
    ],
)
def test_contradictions_in_the_manifest_are_named(changes, text):
    sound = {
        "space": "ee_pose", "joints": list(JOINTS), "urdf": "arm.urdf", "mean": [0.0] * 7, "std": [1.0] * 7,
        "end_effectors": [{"frame": "tool", "joints": list(ARM)}],
    }  # fmt: skip
    ActionModel(**sound)
    with pytest.raises(ValueError, match=text):
        ActionModel(**{**sound, **changes})
