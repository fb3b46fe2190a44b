"""Each of the five silences is noticed when its deadline passes, and the fallback's first command comes at once."""

import numpy as np
import pytest

from vla_runtime.control.fallback import Stop
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog_report import snapshot
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.control.watchdog_states import TRANSITIONS, State
from vla_runtime.sim.watchdog_rig import PERIOD_S, WatchdogRig

SILENCES = {
    "stream": (lambda rig: setattr(rig, "stream", False), 0.04),
    "heartbeat": (lambda rig: setattr(rig, "heartbeat", ""), 0.5),
    "warming": (lambda rig: setattr(rig, "heartbeat", "warming"), 0.5),
    "answers": (lambda rig: setattr(rig, "answers", False), 0.5),
    "observation": (lambda rig: setattr(rig, "frozen_t0", rig.now), 2.0),
    "joints": (lambda rig: setattr(rig, "joints", False), 0.1),
}


@pytest.mark.parametrize("name", SILENCES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_from_the_fault_to_the_fallback(name, seed):
    fault, deadline = SILENCES[name]
    rig = WatchdogRig(seed=seed).nominal()
    while rig.ticks % 10 != 1:  # a request has just gone out: from here on it will stay unanswered
        rig.tick()
    fault(rig)
    took = rig.run_until("FALLBACK")
    assert deadline - 0.02 <= took <= deadline + 2 * PERIOD_S + 1e-9
    assert rig.command.trajectory is not None and rig.command.in_command == "fallback"
    assert rig.command.transition.target is State.FALLBACK and rig.command.transition.cause == rig.command.cause
    rig.run(1.5)
    assert rig.checker.violations == []
    assert np.all(rig.command.trajectory.velocities == 0.0)


@pytest.mark.parametrize("name", ["answers", "heartbeat"])
def test_a_late_policy_is_coasted_on_and_counted_once(name):
    rig = WatchdogRig().nominal()
    SILENCES[name][0](rig)
    rig.run_until("COASTING")
    assert rig.command.in_command == "policy" and rig.watchdog.missed["answer"] == 1
    miss = rig.watchdog.misses[-1]
    assert miss.stage == "answer" and miss.age_s > 0.25 and miss.t == rig.now
    rig.answers, rig.heartbeat = True, "ready"
    rig.run_until("NOMINAL")
    assert rig.command.cause == "the answer came"
    assert rig.watchdog.missed["answer"] == 1 and rig.watchdog.passed[State.NOMINAL, State.FALLBACK] == 0


def test_an_engine_that_raises_needs_no_deadline():
    rig = WatchdogRig().nominal()
    rig.heartbeat = "error: the engine raised on its third call"
    assert rig.run_until("FALLBACK") == pytest.approx(PERIOD_S)
    assert "third call" in rig.command.cause


@pytest.mark.parametrize("lost", [1, 2])
def test_a_message_that_is_lost_or_late_is_no_fault(lost):
    """Until the deadline the last accepted trajectory is driven on: a command leaves in every period."""
    rig = WatchdogRig().nominal()
    for _ in range(5):
        rig.stream = False
        for _ in range(lost):
            rig.tick()
        rig.stream = True
        rig.run(0.1)
    assert rig.command.state == "NOMINAL"
    assert rig.watchdog.passed[State.NOMINAL, State.FALLBACK] == 0
    assert rig.checker.violations == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.positions.__setitem__((3, 2), np.nan), "not_finite"),
        (lambda t: t.velocities.__setitem__((-1, 2), 0.5), "form"),
        (lambda t: t.positions.__iadd__(0.3), "jump"),
        (lambda t: t.positions.__setitem__((5, 2), 57.3), "acceleration"),
    ],
)
def test_what_the_gate_refuses_is_not_driven(change, reason):
    """Nothing of a refused trajectory reaches the arm; the last good one is driven on, then the fallback has it."""
    rig = WatchdogRig().nominal()
    begin = rig.now
    while rig.command.state == "NOMINAL" and rig.now - begin < 1.0:
        rig.now += PERIOD_S
        planned = rig.planned()
        rig.now -= PERIOD_S
        change(planned)
        rig.tick(planned)
    assert rig.command.state == "FALLBACK"
    assert rig.now - begin <= 0.04 + 2 * PERIOD_S
    assert rig.watchdog.refused[reason] == 3
    assert [miss.stage for miss in rig.watchdog.misses] == ["gate", "stream"]  # a streak is logged once
    told = snapshot(rig.watchdog, rig.now)["last_refusal"]
    assert rig.command.cause.startswith("no valid planned trajectory")
    assert rig.command.cause.endswith(f"; refused: {told}")
    assert any(name in told for name in rig.limits.joint_names)
    rig.run(1.0)
    assert rig.checker.violations == []


def test_a_stream_that_ends_without_a_refusal_is_not_said_to_be_refused():
    rig = WatchdogRig().nominal()
    planned = rig.planned()
    planned.positions[:] += 0.3
    rig.tick(planned)  # once, long before
    rig.run(0.5)
    rig.stream = False
    rig.run_until("FALLBACK")
    assert "refused" not in rig.command.cause
    assert "jumps" in snapshot(rig.watchdog, rig.now)["last_refusal"]


def test_a_plan_that_nobody_answered_is_not_driven():
    """The age of an observation comes from the answers that the watchdog heard, not from what the executor says."""
    rig = WatchdogRig().nominal()
    rig._plan = "rig:999"
    rig.tick()
    assert rig.watchdog.refused["unknown_plan"] == 1


def test_never_armed_before_the_first_good_plan_and_it_says_why():
    rig = WatchdogRig(watchdog_settings())
    rig.joints = rig.answers = False
    assert rig.tick().state == "INACTIVE" and rig.command.trajectory is None
    rig.watchdog.activate(rig.now)
    rig.run(0.3)
    assert rig.command.state == "WARMUP" and rig.command.trajectory is None and rig.command.in_command == "none"
    assert "no joint state ever" in rig.command.cause
    rig.joints, rig.heartbeat = True, "warming"
    rig.run(8.0)  # 8 s of engine warm-up: nothing is published and nothing is amiss
    assert "the policy says 'warming'" in rig.command.cause
    assert rig.watchdog.missed.total() == 0 and list(rig.watchdog.transitions)[-1].target is State.WARMUP
    rig.heartbeat, rig.answers = "ready", True
    rig.run_until("NOMINAL")
    assert rig.command.cause.startswith("first good plan")
    assert np.abs(rig.log[-1][1].trajectory.positions[0]).max() < 3.0 * PERIOD_S  # near the measured state


@pytest.mark.parametrize("order", ["hold", "release", "reset"])
def test_orders_before_the_first_joint_state_publish_nothing(order):
    rig = WatchdogRig()
    rig.joints = rig.stream = False
    rig.watchdog.activate(0.0)
    getattr(rig.watchdog, order)(0.0)
    rig.run(1.0)
    assert all(command.trajectory is None for _, command in rig.log)
    stopped = rig.watchdog.stop(rig.now, "deactivated")
    assert stopped.trajectory is None and stopped.state == "INACTIVE"


def test_an_arm_that_is_not_where_the_first_plan_begins_is_not_armed():
    rig = WatchdogRig()
    rig.watchdog.activate(0.0)
    rig.tick()
    rig.watchdog.saw_answer(rig.now, "rig:1", rig.now)
    far = np.full((2, 6), 1.0)
    start = rig.now + PERIOD_S
    plan = Trajectory(start, rig.limits.joint_names, np.array([0.0, 0.2]), far, np.zeros((2, 6)), "rig:1")
    rig.tick(plan)
    assert rig.command.state == "WARMUP" and "begins at 1 rad, measured 0 rad" in rig.command.cause


def test_the_less_is_known_the_stronger_the_reaction():
    """With the measured state unknown: `stop`, whatever else is set; also when it is lost on the way."""
    poses = {"home": dict.fromkeys(("pan", "lift", "elbow", "flex", "roll"), 0.2)}
    settings = watchdog_settings(fallback="retreat", retreat_poses=["home"])
    rig = WatchdogRig(settings, poses=poses).nominal()
    rig.joints = False
    rig.run_until("FALLBACK")
    assert rig.watchdog.drive.planner == "stop"

    rig = WatchdogRig(settings, poses=poses).nominal()
    rig.stream = False
    rig.run_until("FALLBACK")
    assert rig.watchdog.drive.planner == rig.command.trajectory.plan_id == "retreat"
    rig.run(0.6)
    rig.joints = False
    rig.run(0.2)
    assert rig.watchdog.drive.planner == rig.command.trajectory.plan_id == "stop"
    rig.run(1.0)
    assert np.all(rig.command.trajectory.velocities == 0.0)
    assert rig.checker.violations == []


def test_retreat_arrives_and_every_message_on_the_way_is_short():
    poses = {"home": {"pan": 0.2, "lift": -0.4}, "rest": {"pan": -0.3, "elbow": 0.5}}
    rig = WatchdogRig(watchdog_settings(fallback="retreat", retreat_poses=["home", "rest"]), poses=poses).nominal()
    rig.stream = False
    rig.run_until("FALLBACK")
    begin = len(rig.log)
    rig.run(12.0)
    assert max(command.trajectory.times[-1] for _, command in rig.log[begin:]) < 0.2 + 0.5
    final = rig.command.trajectory.positions[-1]
    assert final[[0, 2]] == pytest.approx([-0.3, 0.5], abs=1e-3)
    assert final[1] == pytest.approx(-0.4, abs=1e-3)
    assert rig.checker.violations == []


def test_a_planner_of_another_package_is_chosen_by_name():
    rig = WatchdogRig(watchdog_settings(fallback="mine"), planners={"mine": Stop, "stop": Stop, "hold": Stop}).nominal()
    rig.stream = False
    rig.run_until("FALLBACK")
    assert rig.watchdog.drive.planner == "mine"


def test_the_log_and_the_counters_are_bounded_and_agree():
    rig = WatchdogRig(watchdog_settings(recover_ticks=1, recover_plans=1)).nominal()
    for _ in range(40):
        rig.stream = False
        rig.run_until("FALLBACK")
        rig.stream = True
        rig.run_until("NOMINAL")
    watchdog = rig.watchdog
    assert watchdog.missed["stream"] == watchdog.passed[State.NOMINAL, State.FALLBACK] == 40
    assert watchdog.transitions[-1].count == watchdog.passed[State.FALLBACK, State.NOMINAL] == 40
    assert len(watchdog.misses) <= 256 and len(watchdog.transitions) <= 256
    figures = snapshot(watchdog, rig.now)
    assert figures["transitions"]["NOMINAL->FALLBACK"] == 40 and figures["missed"] == {"stream": 40}
    assert figures["state"] == "NOMINAL" and figures["in_command"] == "policy"


def test_every_state_can_be_left_and_every_way_has_a_reason():
    assert set(TRANSITIONS) == set(State)
    assert all(ways and all(ways.values()) for ways in TRANSITIONS.values())
    assert all(State.INACTIVE in ways for state, ways in TRANSITIONS.items() if state is not State.INACTIVE)


def test_joint_states_with_other_clocks_do_not_move_the_loop():
    """The ROS clock jumps, and what was on its way looks an hour old or an hour early."""
    for jump in (3600.0, -3600.0):
        rig = WatchdogRig().nominal()
        rig.watchdog.tick(rig.now + 0.001, JointSample(rig.now + jump, rig.measured(), np.zeros(6)), None)
        rig.run(0.5)
        assert rig.command.state == "NOMINAL"
        assert snapshot(rig.watchdog, rig.now)["odd_stamps"] == 1
