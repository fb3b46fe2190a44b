"""The simulated arm: what a driver may count on."""

import numpy as np
import pytest

from vla_runtime.sim.arm import Arm
from vla_runtime.sim.kinematics import inverse


@pytest.fixture(scope="module")
def arm():
    return Arm(3)


def test_it_holds_still_without_droop(arm):
    arm.reset(3)
    for _ in range(100):
        arm.drive(arm.home)
    assert arm.time_s == pytest.approx(2.0)
    assert np.abs(arm.q - arm.home).max() < 0.002
    assert np.abs(arm.qd).max() < 0.01
    assert max(abs(h) for h in arm.cube_heights().values()) < 0.001


def test_it_follows_a_slow_command(arm):
    arm.reset(3)
    goal = np.append(inverse(0.22, 0.08, 0.10, 0.3, pitch=1.4), 0.9)
    for k in range(1, 101):
        arm.drive(arm.home + (goal - arm.home) * k / 100)
    for _ in range(30):
        arm.drive(goal)
    assert np.abs(arm.q - goal).max() < 0.01


def test_the_same_seed_and_commands_give_the_same_states(arm):
    runs = []
    for _ in range(2):
        arm.reset(11)
        for k in range(30):
            arm.drive(arm.home + 0.01 * k)
        runs.append(arm.data.qpos.copy())
    assert (runs[0] == runs[1]).all()


def test_step_to_reaches_the_time_and_ignores_the_past(arm):
    arm.reset(0)
    arm.step_to(0.0341)
    assert arm.time_s == pytest.approx(0.034)
    arm.step_to(0.01)
    assert arm.time_s == pytest.approx(0.034)


@pytest.mark.parametrize("targets", [[0.0] * 5, [0.0] * 5 + [float("nan")], [[0.0] * 6]])
def test_targets_that_are_no_six_finite_numbers_are_refused(arm, targets):
    with pytest.raises(ValueError, match="6 finite numbers"):
        arm.set_targets(targets)


def test_targets_are_cut_to_the_ranges(arm):
    arm.reset(0)
    arm.set_targets([9.0] * 6)
    assert (arm.targets == arm.upper).all()


def test_projection_finds_the_cube_in_the_picture(arm):
    scene = arm.reset(5)
    colour = {"red": 0, "green": 1, "blue": 2}
    picture = arm.render("front", 192, 192).astype(int)
    for name, channel in colour.items():
        u, v, seen = arm.project("front", arm.cube_pose(name)[:3])
        assert seen
        assert int(np.argmax(picture[int(v * 192), int(u * 192)])) == channel, (scene, name)


def test_pictures_have_the_size_asked_for(arm):
    assert arm.render("wrist", 96, 64).shape == (64, 96, 3)
    assert arm.render("wrist").dtype == np.uint8
    with pytest.raises(KeyError):
        arm.render("ceiling")
