"""Stage profiles: Alpamayo-R1's published one, its errors, and the memory-bound floor of a token."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.toolchain.budget import LatencyProfile, load_policies, memory_bound_ms_per_token

AR1 = load_policies()["alpamayo-r1"].published
times = st.floats(0, 1e4)
counts = st.integers(0, 1000)


def test_published_totals():
    profile = AR1.profile
    assert profile.total_ms(40, 5) == pytest.approx(98.72, abs=0.005)
    assert profile.total_ms(0, 5) == pytest.approx(28.72, abs=0.005)
    assert profile.total_ms(40, 0, AR1.trajectory_ms) == pytest.approx(311.97, abs=0.005)
    assert AR1.trajectory_tokens == 127


@pytest.mark.parametrize("share, expected", [(0, 28.7), (0.1, 35.7), (0.25, 46.2), (0.5, 63.7), (1, 98.7)])
def test_expected_latency_and_the_worst_case_that_stays(share, expected):
    assert AR1.profile.expected_ms(share, 40, 5) == pytest.approx(expected, abs=0.05)
    assert AR1.profile.worst_ms(40, 5) == pytest.approx(98.72, abs=0.005)


@pytest.mark.parametrize("share", [-0.1, 1.01, math.nan, -1e-9])
def test_a_share_outside_0_to_1_is_quoted(share):
    with pytest.raises(ValueError, match=repr(share).replace(".", r"\.")):
        AR1.profile.expected_ms(share, 40, 5)


@pytest.mark.parametrize("tokens, steps, quoted", [(-1, 5, "-1"), (40, -3, "-3"), (2.5, 5, "2.5"), (True, 5, "True")])
def test_a_count_below_zero_is_quoted(tokens, steps, quoted):
    with pytest.raises(ValueError, match=quoted):
        AR1.profile.total_ms(tokens, steps)


def test_a_negative_time_is_quoted():
    with pytest.raises(ValueError, match="prefill_ms.*-1"):
        LatencyProfile(1.0, -1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="-2"):
        AR1.profile.total_ms(0, 0, -2.0)


@settings(deadline=None)
@given(st.builds(LatencyProfile, times, times, times, times), st.floats(0, 1), counts, counts)
def test_the_mean_lies_between_the_branches(profile, share, tokens, steps):
    fast, slow = profile.total_ms(0, steps), profile.worst_ms(tokens, steps)
    mean = profile.expected_ms(share, tokens, steps)
    assert fast * (1 - 1e-9) <= mean <= slow * (1 + 1e-9)


@pytest.mark.parametrize("bytes_per_parameter, expected", [(2, 14), (1, 7), (0.5, 3.5)])
def test_floor_of_a_token(bytes_per_parameter, expected):
    assert memory_bound_ms_per_token(7e9, bytes_per_parameter, 1000) == pytest.approx(expected)


@pytest.mark.parametrize("bandwidth", [0, -1.5])
def test_a_bandwidth_that_is_not_positive_is_quoted(bandwidth):
    with pytest.raises(ValueError, match=str(bandwidth)):
        memory_bound_ms_per_token(7e9, 2, bandwidth)


def test_other_nonsense_is_quoted_too():
    with pytest.raises(ValueError, match="-7"):
        memory_bound_ms_per_token(-7, 2, 1000)
    with pytest.raises(ValueError, match="-2"):
        memory_bound_ms_per_token(7e9, -2, 1000)
