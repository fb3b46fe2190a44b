"""The watchdog's process is stopped for a while and wakes: nothing jumps, and nothing goes on from where it would be.

While it slept the arm came to the stop of the last command. One command may have been made and never sent.
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.sim.watchdog_rig import PERIOD_S, WatchdogRig

HOME = {"pan": 1.5, "lift": -1.5}
GOAL = np.array([1.5, -1.5, 1.5, 0.0, 0.0, 0.0])
PUSH = np.array([0.9, 0.0, 0.0, 0.0, 0.0, 0.0])


def lead(rig: WatchdogRig) -> None:
    now, still = rig.now + PERIOD_S, np.stack([GOAL, GOAL])
    rig.watchdog.offer_teleop(
        rig.now, Trajectory(now, rig.limits.joint_names, np.array([0.0, 0.2]), still, 0.0 * still)
    )


def nothing(_rig: WatchdogRig) -> None:
    pass


def made(kind: str) -> tuple[WatchdogRig, Callable[[WatchdogRig], None]]:
    """A watchdog in the middle of something, and what goes on beside it in each period."""
    values = {"fallback": "retreat", "retreat_poses": ["home"]} if kind == "retreat" else {"teleop_timeout_s": 5.0}
    rig = WatchdogRig(watchdog_settings(**values), poses={"home": HOME}).nominal()
    if kind in ("retreat", "give way"):
        rig.stream = False
        rig.run_until("FALLBACK")
    if kind == "give way":
        rig.run(1.0)
        rig.pushed = PUSH
        rig.run(0.6)
        assert rig.watchdog.holding.gave_way == 1
    if kind == "hold":
        rig.watchdog.hold(rig.now)
    return rig, lead if kind == "teleop" else nothing


def wake(kind: str, ticks: int, pause: int, unsent: bool) -> WatchdogRig:
    rig, beside = made(kind)
    for _ in range(ticks):
        beside(rig)
        rig.tick()
    if unsent:
        before = rig._last
        beside(rig)
        rig.tick()
        rig.watchdog.unsaid()
        rig._last = rig.checker.last = before
    rig.ticks += pause
    rig.now = rig.ticks * PERIOD_S
    for _ in range(10):
        beside(rig)
        rig.tick()
    return rig


@pytest.mark.parametrize("kind", ["policy", "hold", "retreat", "teleop", "give way"])
@given(st.integers(1, 40), st.integers(1, 33), st.booleans())
@settings(max_examples=15, deadline=None)
def test_whatever_it_was_doing_nothing_jumps(kind, ticks, pause, unsent):
    assume(pause + unsent <= 33)  # silent for longer, it begins anew: see below
    rig = wake(kind, ticks, pause, unsent)
    assert rig.checker.violations == []


def test_what_was_begun_is_begun_again():
    retreat = wake("retreat", 20, 30, False)
    retreat.run(4.0)
    assert retreat.command.trajectory.positions[-1][:2] == pytest.approx([1.5, -1.5], abs=1e-3)
    teleop = wake("teleop", 20, 30, False)
    for _ in range(200):
        lead(teleop)
        teleop.tick()
    assert teleop.command.trajectory.positions[-1] == pytest.approx(GOAL, abs=2e-3)
    assert retreat.checker.violations == teleop.checker.violations == []


def test_a_first_command_that_was_never_sent_leaves_the_arm_standing():
    rig = WatchdogRig()
    rig.watchdog.activate(rig.now)
    while rig.command.trajectory is None:
        rig.tick()
    rig.watchdog.unsaid()
    rig._last = rig.checker.last = None
    rig.stream = False
    rig.ticks += 30
    rig.tick()
    assert rig.command.state == "FALLBACK" and not rig.command.trajectory.velocities.any()
    rig.run(0.5)
    assert rig.checker.violations == []


@pytest.mark.parametrize("kind", ["policy", "hold", "retreat", "teleop"])
@pytest.mark.parametrize("pause_s", [1.0, 14.0])
def test_after_a_long_sleep_the_arm_is_taken_from_where_it_is(kind, pause_s):
    """It was sent to where it had been before: at 17 times its speed limit, when another watchdog had moved it."""
    rig, beside = made(kind)
    for _ in range(20):
        beside(rig)
        rig.tick()
    before, rig.stream = rig.command.state, True
    rig.ticks += round(pause_s / PERIOD_S)
    rig._home, rig._last = np.full(6, -0.7), None  # meanwhile
    rig.checker.forget()
    rig.tick()
    assert rig.command.trajectory is None and rig.command.in_command == "none"
    assert rig.command.state == ("HOLD" if before == "HOLD" else "FALLBACK")
    if kind == "hold":
        rig.run(1.0)
        assert rig.command.state == "HOLD" and rig.command.trajectory is None
        assert rig.watchdog.release(rig.now) == ""
    while rig.command.trajectory is None:
        rig.tick()
    assert rig.command.state == "NOMINAL"
    assert rig.command.trajectory.positions[0] == pytest.approx(rig._home, abs=0.06)
    rig.run(1.0)
    assert rig.checker.violations == []


def test_an_operator_who_drives_on_through_a_long_sleep_drives_from_where_the_arm_is():
    rig, beside = made("teleop")
    for _ in range(20):
        beside(rig)
        rig.tick()
    rig.ticks += 100
    rig.now = rig.ticks * PERIOD_S
    rig._home, rig._last = np.full(6, -0.7), None
    rig.checker.forget()
    beside(rig)
    rig.tick()
    assert rig.command.state == "TELEOP"
    assert rig.command.trajectory.positions[0] == pytest.approx(rig._home, abs=1e-6)


def test_one_that_is_ended_when_it_wakes_says_nothing():
    rig, _ = made("policy")
    rig.run(0.5)
    assert rig.watchdog.stop(rig.now + 14.0, "deactivated").trajectory is None
