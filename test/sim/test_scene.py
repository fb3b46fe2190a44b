"""The scene that a seed draws, and the rule for success."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.sim.scene import BEARING_RAD, PAN_AXIS_X_M, REACH_M, SEPARATION_M, draw_scene
from vla_runtime.sim.task import COLOURS, PHRASES, colour_of, instruction_for, judge

SEEDS = st.integers(0, 2**31 - 1)


@given(SEEDS)
def test_cubes_lie_within_reach_and_apart(seed):
    scene = draw_scene(seed)
    assert set(scene.cubes) == set(COLOURS)
    places = np.array([pose[:2] for pose in scene.cubes.values()]) - (PAN_AXIS_X_M, 0.0)
    radius, bearing = np.hypot(*places.T), np.arctan2(places[:, 1], places[:, 0])
    assert (radius >= REACH_M[0] - 1e-9).all() and (radius <= REACH_M[1] + 1e-9).all()
    assert (bearing >= BEARING_RAD[0]).all() and (bearing <= BEARING_RAD[1]).all()
    for a in range(3):
        for b in range(a):
            assert np.hypot(*(places[a] - places[b])) >= SEPARATION_M


@given(SEEDS)
def test_the_instruction_does_not_change_the_cubes(seed):
    assert draw_scene(seed, "pick up the blue cube").cubes == draw_scene(seed).cubes == draw_scene(seed).cubes


@given(st.sampled_from(COLOURS), SEEDS)
def test_every_phrasing_names_its_colour(colour, seed):
    assert colour_of(instruction_for(colour, np.random.default_rng(seed))) == colour


def test_every_phrase_has_one_place_for_the_colour():
    assert all(phrase.count("{}") == 1 for phrase in PHRASES)


@pytest.mark.parametrize("text", ["pick up the cube", "the red or the blue cube", "", "pick up the redish cube"])
def test_an_instruction_without_one_colour_is_refused(text):
    with pytest.raises(ValueError, match="exactly one of the colours"):
        colour_of(text)


@pytest.mark.parametrize(
    ("rise", "success", "wrong"),
    [
        ({"red": 0.051, "green": 0.0, "blue": 0.0}, True, False),
        ({"red": 0.050, "green": 0.0, "blue": 0.0}, False, False),
        ({"red": 0.06, "green": 0.06, "blue": 0.0}, False, True),
        ({"red": 0.0, "green": 0.0, "blue": 0.06}, False, True),
    ],
)
def test_success_needs_the_named_cube_up_and_no_other(rise, success, wrong):
    outcome = judge(rise, "red")
    assert (outcome.success, outcome.wrong_object) == (success, wrong)
