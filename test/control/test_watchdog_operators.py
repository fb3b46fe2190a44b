"""Recovery, hold, teleop, faults: who gets the arm back, how, and from where."""

import numpy as np
import pytest

from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_report import snapshot
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.control.watchdog_states import State
from vla_runtime.errors import UserError
from vla_runtime.sim.watchdog_rig import PERIOD_S, WatchdogRig


def fall(rig: WatchdogRig) -> WatchdogRig:
    rig.stream = False
    rig.run_until("FALLBACK")
    return rig


def still(rig: WatchdogRig, at: np.ndarray) -> Trajectory:
    """What a leader arm that rests at `at` sends now (received before the next tick)."""
    now = rig.now + PERIOD_S
    return Trajectory(now, rig.limits.joint_names, np.array([0.0, 0.2]), np.stack([at, at]), np.zeros((2, 6)))


def lead(rig: WatchdogRig, at: np.ndarray, seconds: float) -> None:
    for _ in range(round(seconds / PERIOD_S)):
        rig.watchdog.offer_teleop(rig.now, still(rig, at))
        rig.tick()


# Recovery


def test_the_policy_comes_back_after_good_plans_from_fresh_answers():
    rig = fall(WatchdogRig().nominal())
    begin, rig.stream = rig.now, True
    plans = set()
    while rig.command.state == "FALLBACK":
        plans.add(rig._plan)
        rig.tick()
    assert rig.command.state == "NOMINAL" and rig.command.cause == "recovered"
    assert rig.now - begin >= 10 * PERIOD_S
    assert len(plans) >= 3  # the one that was running, and two new ones
    rig.run(1.0)
    assert rig.checker.violations == []


def test_plans_that_saw_nothing_since_the_fallback_do_not_count():
    rig = fall(WatchdogRig().nominal())
    rig.stream, rig.frozen_t0 = True, rig.now - 0.3
    rig.run(1.5)
    assert rig.command.state == "FALLBACK"
    assert snapshot(rig.watchdog, rig.now)["recovery"] == "0 of 2 fresh plans"
    rig.frozen_t0 = None
    rig.run_until("NOMINAL")


def test_one_refused_plan_begins_the_count_anew():
    rig = fall(WatchdogRig(watchdog_settings(recover_ticks=20, recover_plans=1)).nominal())
    rig.stream = True
    for _ in range(6):
        rig.run(0.3)
        assert rig.command.state == "FALLBACK"
        bad = rig.planned()
        bad.positions[2] = np.nan
        rig.tick(bad)
    rig.run_until("NOMINAL")


def test_while_a_deadline_is_missed_nobody_comes_back():
    rig = fall(WatchdogRig().nominal())
    rig.stream, rig.heartbeat = True, "warming"
    rig.run(3.0)
    assert rig.command.state == "FALLBACK"
    rig.heartbeat = "ready"
    rig.run_until("NOMINAL")


def test_the_operator_may_have_the_last_word():
    rig = WatchdogRig(watchdog_settings(require_release=True)).nominal()
    assert rig.watchdog.release(rig.now)  # a release before the fallback is none
    fall(rig).stream = True
    rig.run(3.0)
    assert rig.command.state == "FALLBACK"
    assert "release" in snapshot(rig.watchdog, rig.now)["recovery"]
    assert rig.watchdog.release(rig.now) == ""
    rig.run_until("NOMINAL", 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_the_arm_is_handed_back_while_the_fallback_still_moves(seed):
    """Also then position and velocity of the command are continuous."""
    rig = WatchdogRig(watchdog_settings(recover_ticks=2, recover_plans=1), seed=seed).nominal()
    while np.abs(rig.command.trajectory.velocities[0]).max() < 1.0:
        rig.tick()
    fall(rig).stream = True
    rig._plan = "rig:fresh"
    rig.watchdog.saw_answer(rig.now, rig._plan, rig.now)
    assert rig.run_until("NOMINAL") == pytest.approx(2 * PERIOD_S)
    assert np.abs(rig.command.trajectory.velocities[0]).max() > 0.3
    rig.run(1.0)
    assert rig.checker.violations == []


# Faults


def test_too_many_fallbacks_latch_a_fault_until_reset():
    rig = WatchdogRig(watchdog_settings(max_fallbacks=3, recover_ticks=1, recover_plans=1)).nominal()
    for _ in range(2):
        fall(rig).stream = True
        rig.run_until("NOMINAL")
    rig.stream = False
    rig.run_until("FAULT")
    assert rig.command.cause.startswith("3 fallbacks within 60 s")
    rig.stream = True
    rig.run(3.0)
    assert rig.command.state == "FAULT" and rig.command.trajectory is not None
    assert rig.watchdog.hold(rig.now) and rig.watchdog.release(rig.now)  # neither means anything now
    assert rig.watchdog.reset(rig.now) == ""
    rig.run_until("NOMINAL")
    assert rig.watchdog.passed[State.FAULT, State.FALLBACK] == 1  # by way of a recovery
    assert rig.checker.violations == []


def test_an_arm_that_does_not_follow_is_a_fault_by_name():
    rig = WatchdogRig().nominal()
    rig.pushed[2] = 0.6
    took = rig.run_until("FAULT")
    assert 0.3 <= took <= 0.3 + 2 * PERIOD_S
    assert "elbow commanded" in rig.command.cause and "0.5 rad" in rig.command.cause
    assert rig.command.flush
    rig.run(1.0)
    assert rig.checker.violations == []


def test_a_gripper_on_an_object_is_none():
    rig = WatchdogRig().nominal()
    rig.pushed[5] = 0.9
    rig.run(2.0)
    assert rig.command.state == "NOMINAL"


# A held arm that is pushed


def test_a_pushed_arm_is_held_where_it_was_pushed():
    rig = fall(WatchdogRig().nominal())
    rig.run(1.0)
    before = rig.command.trajectory.positions[-1].copy()
    rig.pushed[[1, 5]] = 0.3
    target = before[1] + 0.3
    for _ in range(200):  # the push ends where the arm is: what is measured stays, while the command comes after
        rig.pushed[1] = target - rig._last.sample(rig.now + PERIOD_S)[0][1]
        rig.tick()
    after = rig.command.trajectory.positions[-1]
    assert after[1] == pytest.approx(target, abs=0.01)
    assert after[5] == pytest.approx(before[5], abs=1e-3)  # the gripper does not let go
    assert snapshot(rig.watchdog, rig.now)["gave_way"] == 1
    assert rig.checker.violations == []


def test_a_servo_that_sags_does_not_creep_for_ever():
    rig = fall(WatchdogRig(watchdog_settings(reanchor_max=3)).nominal())
    rig.run(1.0)
    before = rig.command.trajectory.positions[-1].copy()
    rig.pushed[1] = -0.2
    rig.run(20.0)
    assert rig.command.trajectory.positions[-1][1] == pytest.approx(before[1] - 0.6, abs=0.05)
    assert rig.checker.violations == []


# Hold


def test_hold_stops_and_release_goes_by_way_of_a_recovery():
    rig = WatchdogRig().nominal()
    assert rig.watchdog.hold(rig.now) == ""
    rig.tick()
    assert rig.command.state == "HOLD" and rig.command.flush and rig.command.in_command == "fallback"
    rig.run(3.0)
    assert rig.command.state == "HOLD" and np.all(rig.command.trajectory.velocities == 0.0)
    assert rig.watchdog.release(rig.now) == ""
    rig.tick()
    assert rig.command.state == "FALLBACK"
    rig.run_until("NOMINAL")
    assert rig.checker.violations == []


def test_a_hold_that_is_released_before_the_next_tick_is_none():
    rig = WatchdogRig()
    rig.watchdog.activate(rig.now)
    assert rig.watchdog.hold(rig.now) == "" and rig.watchdog.release(rig.now) == ""
    rig.tick()
    assert rig.command.state == "WARMUP"
    rig.run_until("NOMINAL")


def test_hold_goes_before_everything_but_a_fault():
    rig = WatchdogRig().nominal()
    rig.watchdog.hold(rig.now)
    lead(rig, np.zeros(6), 0.5)
    assert rig.command.state == "HOLD" and rig.watchdog.refused["teleop_not_allowed"] > 0
    assert "the arm is held" in rig.watchdog.last_refusal
    rig.joints = False
    rig.run(0.5)
    assert rig.command.state == "HOLD" and rig.checker.violations == []


def test_what_means_nothing_is_answered_with_the_state():
    rig = WatchdogRig().nominal()
    assert "NOMINAL" in rig.watchdog.release(rig.now)
    assert "NOMINAL" in rig.watchdog.reset(rig.now)
    with pytest.raises(ValueError, match="active already, in state NOMINAL"):
        rig.watchdog.activate(rig.now)


# Teleop


@pytest.mark.parametrize("seed", range(4))
def test_the_arm_goes_to_the_operators_stream_and_then_follows_it(seed):
    rig = WatchdogRig(seed=seed).nominal()
    goal = np.random.default_rng(seed).uniform(-1.5, 1.5, 6)
    rig.watchdog.offer_teleop(rig.now, still(rig, goal))
    rig.tick()
    assert rig.command.state == "TELEOP" and rig.command.flush and rig.command.in_command == "teleop"
    lead(rig, goal, 6.0)
    assert rig.command.trajectory.positions[-1] == pytest.approx(goal, abs=2e-3)
    for tick in range(100):  # the leader moves, as fast as 1 rad/s
        at = goal - np.sign(goal) * 0.2 * (1.0 - np.cos(5.0 * tick * PERIOD_S)) * np.array([1, 0, 0, 0, 0, 0])
        speed = np.zeros((3, 6))
        speed[:2, 0] = -np.sign(goal[0]) * np.sin(5.0 * tick * PERIOD_S)
        way = at + np.array([0.0, 0.2, 0.35])[:, None] * speed[0]  # a window at the leader's speed, and a brake
        times = np.array([0.0, 0.2, 0.5])
        stream = Trajectory(rig.now + PERIOD_S, rig.limits.joint_names, times, way, speed)
        rig.watchdog.offer_teleop(rig.now, stream)
        rig.tick()
        assert rig.command.trajectory.positions[0] == pytest.approx(at, abs=0.04)
    rig.run_until("NOMINAL")  # silence, then the policy by way of a recovery
    causes = [t.cause for t in rig.watchdog.transitions if t.source is State.TELEOP]
    assert "no valid teleop trajectory for 0.2" in causes[0]
    assert rig.checker.violations == []


def test_teleop_works_before_any_policy_and_begins_where_the_arm_is():
    rig = WatchdogRig()
    rig.stream = False
    rig._home = np.full(6, 0.4)
    rig.watchdog.activate(rig.now)
    rig.run(0.1)
    lead(rig, np.zeros(6), 0.02)
    assert rig.command.state == "TELEOP"
    assert rig.command.trajectory.positions[0] == pytest.approx(np.full(6, 0.4), abs=1e-6)
    lead(rig, np.zeros(6), 3.0)
    assert rig.command.trajectory.positions[-1] == pytest.approx(np.zeros(6), abs=2e-3)
    assert rig.checker.violations == []


def test_teleop_of_an_arm_parked_beyond_a_limit_begins_where_it_is_and_comes_in():
    rig = WatchdogRig()
    rig.stream = False
    rig._home = np.array([2.3, 0.0, 0.0, 0.0, 0.0, 0.0])  # the limit is 2.0
    rig.watchdog.activate(rig.now)
    rig.run(0.1)
    lead(rig, np.full(6, 1.5), 0.02)
    assert rig.command.trajectory.positions[0, 0] == pytest.approx(2.3, abs=1e-6)
    lead(rig, np.full(6, 1.5), 4.0)
    assert rig.command.trajectory.positions[-1] == pytest.approx(np.full(6, 1.5), abs=2e-3)


def test_release_ends_teleop_though_the_device_still_sends():
    rig = WatchdogRig().nominal()
    lead(rig, np.zeros(6), 1.0)
    assert rig.watchdog.release(rig.now) == ""
    lead(rig, np.zeros(6), 1.0)
    assert rig.command.state in ("FALLBACK", "NOMINAL")
    rig.run(0.5)  # a pause
    lead(rig, np.zeros(6), 0.04)
    assert rig.command.state == "TELEOP"


@pytest.mark.parametrize("fault", ["nan", "too fast", "blind", "off"])
def test_an_operators_stream_passes_the_same_gate(fault):
    rig = WatchdogRig(watchdog_settings(teleop_enabled=fault != "off")).nominal()
    stream = still(rig, np.zeros(6))
    if fault == "nan":
        stream.positions[0, 0] = np.nan
    if fault == "too fast":
        stream.positions[1] = 1.0
    if fault == "blind":
        rig.joints = False
        rig.run(0.3)
    rig.watchdog.offer_teleop(rig.now, still(rig, np.zeros(6)) if fault == "blind" else stream)
    rig.tick()
    assert rig.command.state != "TELEOP"
    assert rig.watchdog.missed["teleop"] == 1


def test_losing_sight_of_the_arm_ends_teleop_by_a_stop():
    rig = WatchdogRig().nominal()
    lead(rig, np.ones(6), 0.5)
    rig.joints = False
    lead(rig, np.ones(6), 0.2)
    assert rig.command.state == "FALLBACK" and rig.watchdog.drive.planner == "stop"
    assert rig.checker.violations == []


# The end


def test_the_last_command_is_a_stop():
    rig = WatchdogRig().nominal()
    last = rig.watchdog.stop(rig.now + 0.01, "deactivated")
    assert last.state == "INACTIVE" and last.cause == "deactivated"
    rig.checker.check(rig.now + 0.01, last.trajectory, due=True, jerk_limited=True)
    assert last.trajectory.times[-1] < 1.0
    assert rig.tick().trajectory is None
    assert rig.watchdog.stop(rig.now, "again").trajectory is None
    assert rig.checker.violations == []


def test_it_can_be_activated_again():
    rig = WatchdogRig().nominal()
    rig.watchdog.stop(rig.now, "deactivated")
    assert rig.run(1.0).trajectory is None
    rig.watchdog.activate(rig.now)
    rig.checker.forget()
    rig.run_until("NOMINAL")
    rig.run(0.5)
    assert [v for v in rig.checker.violations if v.rule != "silence"] == []  # the rig knows no second warm-up


def test_deadlines_can_be_changed_while_it_runs():
    rig = WatchdogRig().nominal()
    rig.watchdog.retune(watchdog_settings(stream_deadline_s=0.1))
    rig.stream = False
    assert rig.run_until("FALLBACK") == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"answer_deadline_s": 0.6}, "answer_deadline_s = 0.6 is above policy_deadline_s = 0.5"),
        ({"window_s": 0.06}, "window_s = 0.06 is below"),
        ({"stream_deadline_s": 0.02}, "stream_deadline_s = 0.02 is below 1.5 period_s = 0.03"),
        ({"fallback": "retreat"}, "needs retreat_poses"),
        ({"blind_fallback": "retreat"}, "unknown"),
        ({"stream_deadline_s": -1.0}, "stream_deadline_s"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(values, words):
    with pytest.raises(ValueError, match=words):
        watchdog_settings(**values)


def test_a_planner_that_does_not_exist_is_refused_at_once():
    with pytest.raises(UserError, match="no fallback planner 'park'"):
        WatchdogRig(watchdog_settings(fallback="park"))
