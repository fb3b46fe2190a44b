"""The fault campaign keeps every promise, tells a broken watchdog from a sound one, and follows from its seed."""

from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.control.gate import Gate
from vla_runtime.control.silences import Silences
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.control.watchdog_states import Command, State
from vla_runtime.sim.control_world import ControlWorld
from vla_runtime.sim.fault_kinds import KINDS
from vla_runtime.sim.faults import Campaign
from vla_runtime.sim.truth import Truth
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()


def test_a_campaign_keeps_every_promise():
    campaign = Campaign(LIMITS, seed=20).run(60)
    figures = campaign.report()
    assert campaign.violations == []
    assert figures["faults"] == 60 and figures["kinds"] >= 12
    assert figures["switches"] > 5 and figures["switch_ms"]["max"] <= 40.0
    assert figures["unfounded_fallbacks"] == 0


def test_the_same_seed_gives_the_same_figures():
    first, second = (Campaign(LIMITS, seed=5).run(8).report() for _ in range(2))
    assert first == second
    assert first != Campaign(LIMITS, seed=6).run(8).report()


def test_without_a_fault_nothing_falls_and_the_arm_is_where_the_plan_is_now():
    for seed in range(3):
        world = ControlWorld(seed, LIMITS)
        world.policy.offset_rad = 0.0
        world.run(6.0)
        assert world.truth.violations == []
        assert world.state is State.NOMINAL and world.watchdog.passed[State.NOMINAL, State.FALLBACK] == 0
        away = world.arm(world.now)[0] - world.path(np.array([world.now]))[0]
        assert np.abs(away[:5]).max() < 0.005


@pytest.mark.parametrize("off", [False, True], ids=["watchdog restarted", "watchdog switched off and on"])
def test_an_arm_that_was_moved_while_nobody_drove_is_taken_from_where_it_is(off):
    world = ControlWorld(3, LIMITS)
    assert world.run_until(lambda: world.state is State.NOMINAL, 3.0)
    if off:
        world.watchdog.stop(world.now, "deactivated")
        world.run(1.5)
    world.pushed = np.where(LIMITS.discrete, 0.0, 0.3)
    world.start_watchdog()
    assert world.run_until(lambda: world.state is State.NOMINAL, 5.0), world.watchdog.cause
    assert world.truth.violations == []


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_kind_by_itself(name):
    """From NOMINAL, through the fault, and back: the policy gets the arm again."""
    world = ControlWorld(17, LIMITS)
    rng = np.random.default_rng(3)
    assert world.run_until(lambda: world.state is State.NOMINAL, 3.0)
    world.run(0.3)
    world.run(KINDS[name](world, rng) + 0.2)
    assert world.run_until(lambda: world.state is State.NOMINAL, 6.0), world.watchdog.cause
    assert world.truth.violations == []
    assert world.truth.unfounded == 0


def test_a_clock_that_jumps_back_does_not_make_a_frozen_driver_young():
    world = ControlWorld(17, LIMITS)
    assert world.run_until(lambda: world.state is State.NOMINAL, 3.0)
    world.run(0.3)
    last: list = []

    def repeat(sample):
        last.append(last[0] if last else sample)
        return last[0]

    world.truth.joints_sent(world.now)
    world.joint_change = repeat
    world.run(0.08)
    world.clock_s -= 0.075  # within the deadline: the old state would count as one of now
    world.run(0.4)
    assert world.state is State.FALLBACK
    assert world.truth.violations == []


BROKEN = {
    "deaf to silent streams": (Silences, "stream", lambda self, now: None, ["executor_death"], "deadline"),
    "deaf to the policy": (Silences, "policy_gone", lambda self, now: None, ["crash"], "deadline"),
    "no limits": (Gate, "verdict", lambda self, _: (None, np.zeros(6, bool)), ["stream_fast"], "acceleration"),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_a_broken_watchdog_is_found_out(flaw, monkeypatch):
    """The judge is no friend of what it judges: break the watchdog, and the campaign says so."""
    place, name, broken, kinds, rule = BROKEN[flaw]
    monkeypatch.setattr(place, name, broken)
    campaign = Campaign(LIMITS, seed=1, kinds=kinds).run(12)
    assert rule in {violation["rule"] for violation in campaign.violations}


def test_a_command_that_is_late_in_time_is_found_out(monkeypatch):
    """Were the whole plan driven a period late, the arm would not be where the path is now."""
    original = ControlWorld._planned_arrives

    def delayed(self, planned, sent):
        original(self, replace(planned, start=planned.start + 0.06), sent)

    monkeypatch.setattr(ControlWorld, "_planned_arrives", delayed)
    campaign = Campaign(LIMITS, seed=2, kinds=["duplicate"]).run(3)
    assert campaign.violations


def test_an_unknown_kind_is_refused_with_the_names():
    with pytest.raises(ValueError, match="no kind of fault 'gremlin'; there are: hang, crash"):
        Campaign(LIMITS, kinds=["gremlin"])


@pytest.mark.parametrize("size_s", [0.021, 0.05, 0.099, 0.12, 5.0, -0.021, -0.05, -0.3, -5.0])
def test_a_step_of_the_ros_clock_of_any_size_leaves_the_policy_in_command(size_s):
    """A time server corrects by tens of milliseconds: that is no reason to take the arm from anybody."""
    for seed in range(2):
        world = ControlWorld(seed, six_joints())
        world.run(2.5)
        world.clock_s += size_s
        world.run(2.5)
        assert [str(change.target) for change in world.watchdog.transitions] == ["WARMUP", "NOMINAL"]
        assert not world.watchdog.refused and not world.executor.snapshot()["refused_total"]
        assert not world.truth.violations


@pytest.mark.parametrize(("joint", "found"), [(0, 1), (5, 0)])
def test_the_first_command_must_begin_where_the_arm_is_but_not_where_its_gripper_is(joint, found):
    assert LIMITS.discrete.tolist() == [False] * 5 + [True]
    truth = Truth(LIMITS, watchdog_settings(), 0.02)
    rest = np.tile(0.5 * (LIMITS.lower + LIMITS.upper), (2, 1))
    measured = rest[0].copy()
    measured[joint] += 0.3
    trajectory = Trajectory(1.0, LIMITS.joint_names, np.array([0.0, 0.1]), rest, np.zeros((2, 6)), "a:1")
    truth.commanded(1.0, Command(trajectory, State.NOMINAL, "", "policy"), JointSample(1.0, measured, np.zeros(6)))
    assert sum(violation.rule == "first command" for violation in truth.violations) == found
