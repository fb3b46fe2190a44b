"""Executor and watchdog that were started with different control periods: nothing moves, and the cause says so."""

import numpy as np
import pytest

from vla_runtime.control.rhythm import other_rhythm, planned_period_s
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_report import snapshot
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.control.watchdog_states import State
from vla_runtime.sim.control_world import ControlWorld
from vla_runtime.sim.watchdog_rig import PERIOD_S, WatchdogRig, six_joints


def world(executor_s: float, watchdog_s: float, seed: int = 1) -> ControlWorld:
    patient = {"stream_deadline_s": max(0.04, 1.5 * watchdog_s), "window_s": max(0.2, 4.0 * watchdog_s)}
    planner = {"period_s": executor_s, "k": round(0.2 / executor_s), "window_s": max(0.2, 4.0 * executor_s)}
    settings = watchdog_settings(period_s=watchdog_s, **patient)
    return ControlWorld(seed, six_joints(), settings, planner)


@pytest.mark.parametrize("executor_s", [0.05, 0.06, 0.1])
def test_an_executor_slower_than_the_watchdogs_deadline_is_named_in_the_cause(executor_s):
    """It fell back for ever, for want of planned trajectories, of which one came every period."""
    w = world(executor_s, 0.02)
    w.run(4.0)
    assert w.state is State.FALLBACK
    assert w.watchdog.cause.startswith("no valid planned trajectory for ")
    assert w.watchdog.cause.endswith(
        f"; planned every {executor_s:g} s, but the watchdog's period_s is 0.02 s: start executor and watchdog with "
        "the same period_s"
    )
    at = w.arm(w.now)[0]
    w.run(2.0)
    assert w.state is State.FALLBACK and (w.arm(w.now)[0] == at).all()
    assert w.truth.violations == []


@pytest.mark.parametrize(("executor_s", "watchdog_s"), [(0.01, 0.02), (0.03, 0.02), (0.02, 0.005), (0.02, 0.05)])
def test_a_difference_that_is_driven_all_the_same_is_told(executor_s, watchdog_s):
    w = world(executor_s, watchdog_s)
    w.run(2.0)
    assert w.state is State.NOMINAL
    told = snapshot(w.watchdog, w.now)["other_rhythm"]
    assert f"planned every {executor_s:g} s" in told and f"period_s is {watchdog_s:g} s" in told


@pytest.mark.parametrize("period_s", [0.004, 0.0075, 0.02, 1.0 / 30.0, 0.1])
def test_the_same_period_is_never_taken_for_another(period_s):
    w = world(period_s, period_s)
    told = set()
    for _ in range(200):
        w.run(0.02)
        told.add(snapshot(w.watchdog, w.now)["other_rhythm"])
    assert w.state is State.NOMINAL and told == {""}


def test_the_fault_of_another_executor_is_forgotten_with_its_successor():
    w = world(0.05, 0.02)
    w.run(3.0)
    w.executor_settings = world(0.02, 0.02).executor_settings
    w.start_executor()
    assert w.run_until(lambda: w.state is State.NOMINAL, 3.0)
    assert snapshot(w.watchdog, w.now)["other_rhythm"] == ""


@pytest.mark.parametrize(
    "times",
    [[0.0, 0.02], [0.0, 0.01, 0.03], [0.0, 0.01, 0.03, 0.08], [0.0, 0.01, np.nan, np.inf], [0.0, 0.1, 0.05, 0.0]],
)
def test_what_shows_no_control_grid_is_not_judged_by_one(times):
    limits, rows = six_joints(), np.zeros((len(times), 6))
    planned = Trajectory(0.0, limits.joint_names, np.array(times), rows, rows)
    assert planned_period_s(planned) is None and planned_period_s(None) is None
    assert other_rhythm(planned, 0.02) == ""


def test_a_first_plan_that_is_refused_tells_the_difference_too():
    rig = WatchdogRig()
    rig.watchdog.activate(0.0)
    rig.tick()
    rig.watchdog.saw_answer(rig.now, "rig:1", rig.now)
    far, times = np.full((6, 6), 1.0), 0.05 * np.arange(6.0)
    rig.tick(Trajectory(rig.now + PERIOD_S, rig.limits.joint_names, times, far, np.zeros((6, 6)), "rig:1"))
    assert rig.command.state == "WARMUP"
    assert "begins at 1 rad" in rig.command.cause and "; planned every 0.05 s, but" in rig.command.cause
