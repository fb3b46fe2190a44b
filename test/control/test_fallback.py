"""Fallback planners stop the arm from any state of motion, inside the limits, and go where they are told."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.control import fallback
from vla_runtime.control.brake import brake
from vla_runtime.control.drive import Drive
from vla_runtime.control.fallback import BUILT_IN, PlannerContext, Situation, build_planner, installed_planners
from vla_runtime.control.gate import Gate
from vla_runtime.control.motion import MotionError, MotionState, move, stop
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.errors import UserError
from vla_runtime.sim.command_checker import CommandChecker
from vla_runtime.sim.watchdog_rig import six_joints

LIMITS = six_joints()
POSES = {"up": {"pan": 0.0, "lift": -1.0}, "home": {"pan": 0.5, "lift": 0.5, "elbow": -0.5, "flex": 0.1, "roll": 0.2}}
CONTEXT = PlannerContext(LIMITS, retreat=("up", "home"), poses=POSES)


def situation(seed: int, room: float = 0.5) -> Situation:
    """A command in motion: a random state, and the brake that the last message ends with."""
    rng = np.random.default_rng(seed)
    state = MotionState(rng.uniform(-room, room, 6), rng.uniform(-2.5, 2.5, 6), rng.uniform(-9.0, 9.0, 6))
    return of(state)


def of(state: MotionState) -> Situation:
    whole = brake(state.position, state.velocity, state.acceleration, LIMITS, 0.02)
    times, positions, velocities = whole.times, whole.positions, whole.velocities
    if len(times) == 1:
        times, positions, velocities = np.array([0.0, 0.1]), positions[[0, 0]], velocities[[0, 0]]
    return Situation(7.0, Trajectory(7.0, LIMITS.joint_names, times, positions, velocities), state, None, "test")


def judged(trajectory: Trajectory, jerk: bool = True) -> list:
    checker = CommandChecker(LIMITS)
    checker.check(trajectory.start, trajectory, due=True, jerk_limited=jerk)
    return checker.violations


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(sorted(BUILT_IN)), st.integers(0, 100_000))
def test_from_any_motion_to_rest_inside_every_limit(name, seed):
    where = situation(seed)
    planned = build_planner(name, BUILT_IN, CONTEXT).plan(where)
    assert planned.start == 7.0
    assert np.all(planned.positions[0] == where.state.position)
    assert np.all(planned.velocities[0] == where.state.velocity)
    assert np.all(planned.velocities[-1] == 0.0)
    assert [v for v in judged(planned) if v.rule != "velocity"] == []
    # From 2.5 rad/s and 9 rad/s^2 the speed still grows while the acceleration is let go, whatever one does.
    letting_go = np.abs(where.state.velocity) + where.state.acceleration**2 / (2.0 * LIMITS.jerk)
    assert np.all(np.abs(planned.velocities).max(axis=0) <= np.maximum(letting_go * 1.1, LIMITS.velocity))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 100_000))
def test_stop_is_never_slower_than_hold(seed):
    where = situation(seed)
    hard, gentle = (build_planner(name, BUILT_IN, CONTEXT).plan(where) for name in ("stop", "hold"))
    assert hard.times[-1] <= gentle.times[-1] + 0.03


def test_hold_keeps_the_path():
    """All joints stop at the same instant, so the arm stays on its line."""
    velocity = np.array([1.0, 0.5, -0.5, 0.25, 0.1, 0.0])
    where = of(MotionState(np.zeros(6), velocity, np.zeros(6)))
    planned = build_planner("hold", BUILT_IN, CONTEXT).plan(where)
    moved = planned.positions[-1]
    assert np.allclose(moved / moved[0], velocity, atol=0.1)
    hard = build_planner("stop", BUILT_IN, CONTEXT).plan(where).positions[-1]
    assert np.all(np.abs(moved[:4]) > np.abs(hard[:4]))  # gentler is longer


@pytest.mark.parametrize("name", ["stop", "hold"])
@pytest.mark.parametrize("acceleration", [9.0, 0.0, -9.0])
def test_near_a_position_limit_nothing_goes_beyond_it(name, acceleration):
    """The last command's own brake ends exactly at the limit: the fallback must not need more room."""
    state = MotionState(np.zeros(6), np.full(6, 1.0), np.full(6, acceleration))
    way = brake(state.position, state.velocity, np.full(6, -9.0), LIMITS, 0.02).positions[-1]
    where = of(replace(state, position=LIMITS.upper - way))
    if acceleration > 0.0:  # that message would have braked at once, unlike the state's acceleration
        last = brake(where.state.position, state.velocity, np.full(6, -9.0), LIMITS, 0.02)
        where = replace(where, last=Trajectory(7.0, LIMITS.joint_names, last.times, last.positions, last.velocities))
    planned = build_planner(name, BUILT_IN, CONTEXT).plan(where)
    assert [v for v in judged(planned, jerk=False) if v.rule == "position"] == []
    assert np.all(planned.velocities[-1] == 0.0)


def test_an_arm_at_rest_stays():
    rest = MotionState(np.full(6, 0.3), np.zeros(6), np.zeros(6))
    for name in ("stop", "hold"):
        planned = build_planner(name, BUILT_IN, CONTEXT).plan(of(rest))
        assert np.all(planned.positions == 0.3) and len(planned.times) >= 2


def test_retreat_goes_through_the_poses_in_order_and_rests_at_each():
    where = situation(11)
    planned = build_planner("retreat", BUILT_IN, CONTEXT).plan(where)
    resting = np.flatnonzero(np.all(planned.velocities == 0.0, axis=1))
    stops = planned.positions[resting]
    assert len(stops) == 3  # where it stopped, "up", "home"
    assert stops[1][:2] == pytest.approx([0.0, -1.0]) and np.all(stops[1][2:] == stops[0][2:])
    assert stops[2][:5] == pytest.approx([0.5, 0.5, -0.5, 0.1, 0.2])
    assert stops[2][5] == stops[0][5]  # the gripper is in no pose: it stays as it is
    assert planned.brake_from is None  # so the watchdog sends a window of it at a time


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (replace(CONTEXT, retreat=()), ["retreat_poses"]),
        (replace(CONTEXT, retreat=("down",)), ["'down'", "home, up"]),
        (replace(CONTEXT, retreat=("x",), poses={"x": {"knee": 0.0}}), ["'knee'", "pan, lift"]),
        (replace(CONTEXT, retreat=("x",), poses={"x": {"pan": 114.6}}), ["pan", "114.6", "2.0"]),
        (replace(CONTEXT, retreat=("x",), poses={"x": {"pan": float("nan")}}), ["pan", "nan"]),
    ],
)
def test_a_retreat_that_cannot_be_is_refused_with_the_reason(context, words):
    with pytest.raises(UserError) as error:
        build_planner("retreat", BUILT_IN, context)
    assert all(word in str(error.value) for word in words)


def test_an_unknown_planner_is_refused_with_the_names():
    with pytest.raises(UserError, match="no fallback planner 'park'; there are: hold, retreat, stop"):
        build_planner("park", BUILT_IN, CONTEXT)


def test_planners_come_from_entry_points_and_cannot_take_a_built_in_name(monkeypatch):
    group = fallback.ENTRY_POINT_GROUP
    entries = [
        EntryPoint("freeze", "vla_runtime.control.fallback:Stop", group),
        EntryPoint("stop", "nowhere:Other", group),
        EntryPoint("broken", "nowhere:Other", group),
    ]
    monkeypatch.setattr(fallback, "entry_points", lambda group: entries)
    planners = installed_planners()
    assert set(planners) == {"freeze", "broken", "stop", "hold", "retreat"}
    assert planners["stop"] is fallback.Stop
    assert isinstance(build_planner("freeze", planners, CONTEXT), fallback.Stop)
    with pytest.raises(UserError, match="'broken' cannot be built: ModuleNotFoundError"):
        build_planner("broken", planners, CONTEXT)


class Raises:
    needs_measurement = False

    def plan(self, situation):
        raise RuntimeError("no idea")


class Jumps:
    needs_measurement = False

    def plan(self, situation):
        planned = fallback.Stop(CONTEXT).plan(situation)
        return replace(planned, positions=planned.positions + 0.1)


class TooFast:
    needs_measurement = False

    def plan(self, situation):
        planned = fallback.Stop(CONTEXT).plan(situation)
        return replace(planned, times=planned.times * 0.5)


@pytest.mark.parametrize("bad", [Raises, Jumps, TooFast])
def test_a_bad_planner_is_replaced_by_stop(bad):
    gate = Gate(LIMITS, watchdog_settings())
    drive = Drive(gate, {"bad": bad(), "stop": fallback.Stop(CONTEXT)})
    where = situation(3)
    drive.shadow = where.last
    drive.take_over(7.0, "bad", None, "test")
    assert drive.planner == "stop" and drive.failed == 1
    assert drive.failures[0].startswith("bad: ")
    assert [v for v in judged(drive.command(7.0)) if v.rule != "velocity"] == []


def test_with_no_planner_left_the_last_command_brakes_by_itself():
    gate = Gate(LIMITS, watchdog_settings())
    drive = Drive(gate, {"stop": Raises()})
    where = situation(4)
    drive.shadow = where.last
    drive.take_over(7.0, "stop", None, "test")
    assert drive.planner == "last command"
    assert np.allclose(drive.command(7.0).positions[-1], where.last.positions[-1])


def test_a_state_that_is_no_number_has_no_motion():
    bad = MotionState(np.zeros(6), np.full(6, np.nan), np.zeros(6))
    with pytest.raises(MotionError, match="nan"):
        stop(bad, LIMITS.acceleration, LIMITS.jerk)
    with pytest.raises(MotionError):
        move(bad, np.zeros(6), LIMITS.velocity, LIMITS.acceleration, LIMITS.jerk)
