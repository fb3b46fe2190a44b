import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vla_runtime.toolchain.parity.metrics import relative_error, token_cosines, token_kl
from vla_runtime.toolchain.parity.statistics import PairedCounts, drop_interval, mcnemar, pairs_needed, wilson

counts = st.builds(PairedCounts, *[st.integers(0, 80)] * 4)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.5, 0.99))
def test_wilson_agrees_with_scipy(successes, trials, confidence):
    successes = min(successes, trials)
    want = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert wilson(successes, trials, confidence) == pytest.approx((want.low, want.high), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(counts)
def test_mcnemar_is_the_exact_binomial_test_on_discordant_pairs(made):
    discordant = made.only_reference + made.only_candidate
    want = stats.binomtest(made.only_reference, discordant, 0.5).pvalue if discordant else 1.0
    assert mcnemar(made) == pytest.approx(want, rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(counts, st.floats(0.6, 0.99))
def test_bounds_hold_the_drop_and_turn_round_when_the_policies_swap(made, confidence):
    drop, low, high = drop_interval(made, confidence)
    assert -1 <= low <= drop <= high <= 1 + 1e-9
    swapped = PairedCounts(made.both, made.only_candidate, made.only_reference, made.neither)
    assert drop_interval(swapped, confidence) == pytest.approx((-drop, -high, -low))


def test_bounds_by_hand():
    # 200 pairs, no discordant one: (1 - 1)/202 = 0, half width 1.645 * sqrt(2/202 / 202).
    drop, low, high = drop_interval(PairedCounts(180, 0, 0, 20), 0.95)
    assert drop == 0 and high == pytest.approx(1.6449 * np.sqrt(2 / 202 / 202), rel=1e-4) and low == -high


@pytest.mark.parametrize("truth", [0.02, 0.10])
def test_upper_bound_covers_the_true_drop_as_often_as_promised(truth):
    rng = np.random.default_rng(0)
    both, lost, won = 0.7, 0.05 + truth, 0.05
    draws = rng.multinomial(200, [both, lost, won, 1 - both - lost - won], size=2000)
    covered = np.mean([drop_interval(PairedCounts(*map(int, draw)), 0.95)[2] >= truth for draw in draws])
    assert covered > 0.93


def test_the_number_of_pairs_needed_would_have_settled_it():
    made = PairedCounts(170, 5, 5, 20)
    needed = pairs_needed(made, 0.02, 0.95)
    assert drop_interval(made, 0.95)[2] > 0.02 and needed > made.pairs
    factor = needed / made.pairs
    larger = PairedCounts(*(round(value * factor) for value in (170, 5, 5, 20)))
    assert drop_interval(larger, 0.95)[2] <= 0.0205
    assert pairs_needed(PairedCounts(150, 30, 5, 15), 0.02, 0.95) is None


def test_cosines_are_per_token_and_catch_one_turned_token():
    a = np.random.default_rng(0).standard_normal((1, 10, 16)).astype(np.float32)
    b = a.copy()
    assert token_cosines(a, b) == pytest.approx(np.ones(10))
    b[0, 3] *= -1
    assert token_cosines(a, b)[3] == pytest.approx(-1) and token_cosines(a, b).mean() == pytest.approx(0.8)
    assert token_cosines(a, 3 * a) == pytest.approx(np.ones(10)) and relative_error(a, 3 * a) == pytest.approx(2)


def test_cosine_of_zero_tokens():
    zero = np.zeros((2, 16))
    assert token_cosines(zero, zero).tolist() == [1, 1]
    assert token_cosines(zero, zero + 1).tolist() == [0, 0]


def test_narrow_tensors_are_compared_whole():
    assert token_cosines(np.ones((1, 50, 6)), np.ones((1, 50, 6))).shape == (1,)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000))
def test_kl_agrees_with_scipy(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.standard_normal((2, 3, 20)) * 3
    want = [stats.entropy(np.exp(a) / np.exp(a).sum(), np.exp(b) / np.exp(b).sum()) for a, b in zip(p, q)]
    assert token_kl(p, q) == pytest.approx(want, abs=1e-9) and token_kl(p, p) == pytest.approx(np.zeros(3), abs=1e-12)
