import math
from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.control.acceptance import REASONS, Refusal, Rules, accept
from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.limits import Limits
from vla_runtime.control.schedule import Outstanding

NOW = 100.0
LIMITS = Limits(
    ("pan", "lift", "gripper"),
    [-3.1, -1.0, 0.0],
    [3.1, 1.0, 1.0],
    [2.0, 2.0, 5.0],
    [10.0] * 3,
    [100.0] * 3,
    [False, False, True],
)
RULES = Rules(2.0, 0.1, 0.02, 0.05, 3.0, 0.5)
ASKED = Outstanding("e:4", NOW - 0.3, "k")


def chunk(positions=None, **changes):
    if positions is None:
        positions = np.zeros((50, 3))
    return ActionChunk(
        **{
            "t0": NOW - 0.3,
            "dt": 0.04,
            "joint_names": LIMITS.joint_names,
            "positions": positions,
            "request_id": "e:4",
            "received": NOW,
            **changes,
        }
    )


def judge(chunk, asked=ASKED, running=None, command=None, rules=RULES):
    return accept(NOW, chunk, asked, running, command, rules, LIMITS)


def with_value(value, row=7, joint=0):
    positions = np.zeros((50, 3))
    positions[row, joint] = value
    return positions


def test_a_sound_plan_is_taken_in_the_controllers_order():
    positions = np.tile([0.3, 0.1, 0.2], (50, 1))
    taken = judge(chunk(positions, joint_names=("gripper", "pan", "lift")))
    assert (taken == np.tile([0.1, 0.2, 0.3], (50, 1))).all()


@pytest.mark.parametrize(
    ("given", "reason", "detail"),
    [
        (chunk(np.zeros((50, 2))), "width", "2 columns for 3 joint names"),
        (chunk(np.zeros((1, 3))), "shape", "1 waypoints; at least 2"),
        (chunk(np.zeros(50)), "shape", "shape (50,)"),
        (chunk([[0.0] * 3] * 50), "shape", "got list"),
        (chunk(np.full((50, 3), "a")), "shape", "expected numbers"),
        (chunk(joint_names=("pan", "lift", "claw")), "joints", "missing: gripper; unknown: claw"),
        (chunk(joint_names=("pan", "lift", "pan")), "joints", "named twice: pan"),
        (chunk(with_value(math.nan, 31, 1)), "not_finite", "lift at waypoint 31 is nan"),
        (chunk(with_value(-math.inf)), "not_finite", "pan at waypoint 7 is -inf"),
        (chunk(t0=math.nan), "not_finite", "the observation's time is nan"),
        (chunk(dt=0.0), "step", "dt is 0.0"),
        (chunk(dt=math.nan), "step", "dt is nan"),
        (chunk(t0=NOW + 0.5), "future", "0.500 s ahead"),
        (chunk(t0=NOW - 2.5), "elapsed", "none is left"),
        (chunk(t0=NOW - 2.1, dt=1.0), "old_observation", "2.100 s old; allowed: 2 s"),
        (chunk(t0=NOW - 0.45), "old_observation", "0.150 s older than its request; allowed: 0.1 s"),
        (chunk(with_value(3.3)), "limits", "pan at waypoint 7 is 3.3, its limit 3.1"),
        (chunk(with_value(-1.2, 0, 1)), "limits", "lift at waypoint 0 is -1.2, its limit -1"),
        (chunk(np.outer(np.arange(3.0), [0.05, 0.3, 0.0]), t0=NOW), "speed", "lift from waypoint 0 to 1 at 7.5"),
    ],
)
def test_each_refusal_names_what_is_wrong(given, reason, detail):
    refusal = judge(given)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert detail in refusal.detail
    assert refusal.reason in REASONS
    assert str(refusal) == f"{refusal.reason}: {refusal.detail}"


def test_degrees_are_recognised():
    refusal = judge(chunk(with_value(57.3)))
    assert "pan at waypoint 7 is 57.3, its limit 3.1" in refusal.detail
    assert "look like degrees: 57.3 degrees are 1.00007 rad" in refusal.detail
    assert "degrees" not in judge(chunk(with_value(4.0))).detail  # 4 degrees, or 4 rad: nobody knows


def test_an_answer_to_another_request_is_dropped():
    assert judge(chunk(), asked=None).reason == "old_request"
    assert "e:4" in judge(chunk(), asked=None).detail


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_one_bad_value_refuses_the_whole_plan_wherever_it_is(bad):
    for row in (0, 3, 49):
        for joint in range(3):
            assert isinstance(judge(chunk(with_value(bad, row, joint))), Refusal)


def test_elapsed_is_judged_to_the_waypoint():
    assert not isinstance(judge(chunk(np.zeros((8, 3)), t0=NOW - 0.28)), Refusal)  # waypoint 7 is due now
    assert judge(chunk(np.zeros((8, 3)), t0=NOW - 0.29)).reason == "elapsed"


def test_a_small_step_beyond_a_limit_is_set_onto_it():
    above = np.tile([3.14, 0.0, 0.0], (50, 1))
    assert (judge(chunk(above))[:, 0] == 3.1).all()
    assert judge(chunk(above), rules=replace(RULES, position_tolerance=0.0)).reason == "limits"


def test_a_clock_that_is_a_little_ahead_is_forgiven():
    assert not isinstance(judge(chunk(t0=NOW + 0.015)), Refusal)


def test_a_plan_from_the_same_observation_is_no_news():
    assert judge(chunk(), running=NOW - 0.3).reason == "not_newer"
    assert judge(chunk(), running=NOW - 0.1).reason == "not_newer"
    assert not isinstance(judge(chunk(), running=NOW - 0.31), Refusal)


def test_a_jump_from_the_command_is_refused_but_not_for_a_gripper():
    far = np.tile([0.7, 0.0, 0.0], (50, 1))
    refusal = judge(chunk(far), command=np.zeros(3))
    assert refusal.reason == "jump"
    assert "pan is commanded to 0, the plan is at 0.7; allowed: 0.5" in refusal.detail
    assert not isinstance(judge(chunk(far)), Refusal)
    assert not isinstance(judge(chunk(far), command=np.zeros(3), rules=replace(RULES, max_jump=0.0)), Refusal)
    gripper = np.tile([0.0, 0.0, 0.9], (50, 1))
    assert not isinstance(judge(chunk(gripper), command=np.zeros(3)), Refusal)


def test_the_jump_is_judged_where_the_plan_takes_over():
    ramp = np.outer(0.04 * np.arange(50.0), [1.5, 0.0, 0.0])  # 0.3 s old: at 0.45
    assert not isinstance(judge(chunk(ramp), command=np.array([0.45, 0.0, 0.0])), Refusal)
    assert judge(chunk(ramp), command=np.array([-0.1, 0.0, 0.0])).reason == "jump"


def test_a_gripper_may_step():
    positions = np.zeros((50, 3))
    positions[10:, 2] = 1.0
    assert not isinstance(judge(chunk(positions)), Refusal)
