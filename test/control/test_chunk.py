import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.chunk import ActionChunk, columns_by_name, drop_elapsed, elapsed_steps


@pytest.mark.parametrize(
    ("latency", "dt", "skip"),
    [(0.3, 0.1, 3), (1.1, 0.1, 11), (0.245, 0.04, 7), (0.0, 0.1, 0), (1e-12, 0.1, 0), (0.1 + 1e-6, 0.1, 2)],
)
def test_the_waypoint_that_is_due(latency, dt, skip):
    plan = np.arange(60.0).reshape(20, 3)
    assert elapsed_steps(latency, dt) == skip
    assert (drop_elapsed(plan, latency, dt) == plan[skip:]).all()


def test_a_list_is_a_plan_too():
    assert drop_elapsed(["a", "b", "c"], 0.1, 0.1) == ["b", "c"]


@pytest.mark.parametrize("latency", [-1e-3, math.nan, math.inf, -math.inf])
def test_a_latency_that_cannot_be_is_refused(latency):
    with pytest.raises(ValueError, match="latency_s"):
        drop_elapsed(np.zeros((10, 2)), latency, 0.1)


@pytest.mark.parametrize("dt", [0.0, -0.1, math.nan, math.inf])
def test_a_step_that_cannot_be_is_refused(dt):
    with pytest.raises(ValueError, match="dt"):
        drop_elapsed(np.zeros((10, 2)), 0.1, dt)


@pytest.mark.parametrize(("rows", "latency"), [(10, 1.0), (10, 0.91), (0, 0.0), (3, 100.0)])
def test_a_plan_of_which_nothing_is_left_raises(rows, latency):
    with pytest.raises(ValueError, match="nothing is left"):
        drop_elapsed(np.zeros((rows, 2)), latency, 0.1)


def test_a_step_too_small_to_count_is_named():
    with pytest.raises(ValueError, match="dt = 1e-320 s is too small"):
        elapsed_steps(0.1, 1e-320)


@given(st.integers(0, 5000), st.floats(1e-3, 1.0))
def test_a_waypoint_due_exactly_now_is_kept(steps, dt):
    assert elapsed_steps(steps * dt, dt) == steps


@given(st.floats(0.0, 10.0), st.floats(5e-3, 0.5))
def test_no_waypoint_kept_is_past_and_none_dropped_is_due(latency, dt):
    skip = elapsed_steps(latency, dt)
    assert skip * dt >= latency - 2e-9 * dt - 1e-12
    assert skip == 0 or (skip - 1) * dt < latency


def test_a_chunk_knows_its_end():
    chunk = ActionChunk(10.0, 0.1, ("a",), np.zeros((5, 1)), "r", 10.2)
    assert (chunk.horizon, chunk.end) == (5, pytest.approx(10.4))


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]))
def test_columns_are_found_by_name(have, want):
    assert [have[i] for i in columns_by_name(have, want)] == want


@pytest.mark.parametrize(
    ("have", "problem"),
    [
        (["a", "b"], "missing: c"),
        (["a", "b", "c", "x"], "unknown: x"),
        (["a", "b", "c", "a"], "named twice: a"),
        (["a", "b", "z"], "missing: c; unknown: z"),
    ],
)
def test_a_wrong_set_of_names_is_named(have, problem):
    with pytest.raises(ValueError, match=problem):
        columns_by_name(have, ["a", "b", "c"])
