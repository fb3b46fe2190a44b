"""One question, asked of every array: are these numbers?"""

import warnings

import numpy as np
import pytest

from vla_runtime.control.finite import all_finite


@pytest.mark.parametrize("shape", [(0,), (1,), (6,), (25, 6)])
def test_numbers_are_finite(shape):
    assert all_finite(np.random.default_rng(0).normal(size=shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (12, 3), (24, 5)])
def test_one_that_is_none_is_found_wherever_it_is(bad, place):
    values = np.zeros((25, 6))
    values[place] = bad
    assert not all_finite(values)
    assert not all_finite(values.T[::-1])  # as a view that lies in memory in another order


def test_infinities_that_cancel_are_found_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not all_finite(np.array([np.inf, -np.inf]))
        assert not all_finite(np.array([np.nan, np.inf]))


@pytest.mark.parametrize("large", [[1e200, 1.0], [1.7e308, 1.7e308], [1.7e308, -1.7e308]])
def test_numbers_whose_sum_or_square_overflows_are_still_numbers(large):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all_finite(np.array(large))
