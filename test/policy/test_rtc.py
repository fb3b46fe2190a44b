import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.policy import rtc


def test_soft_mask_has_the_papers_values():
    mask = rtc.soft_mask(8, 2, 8 - 3, "exp")
    assert mask == pytest.approx([1, 1, 0.487551, 0.188770, 0.041324, 0, 0, 0], abs=1e-6)


def test_linear_mask_is_linspace_without_its_ends():
    mask = rtc.soft_mask(10, 3, 7, "linear")
    assert mask == pytest.approx([1, 1, 1, *np.linspace(1, 0, 6)[1:-1], 0, 0, 0])


def test_hard_masks():
    assert rtc.soft_mask(6, 2, 4, "ones").tolist() == [1, 1, 1, 1, 0, 0]
    assert rtc.soft_mask(6, 2, 4, "zeros").tolist() == [1, 1, 0, 0, 0, 0]


@given(st.integers(1, 60), st.integers(0, 70), st.integers(0, 70), st.sampled_from(rtc.SCHEDULES))
def test_masks_fall_from_one_to_zero(length, delay, end, schedule):
    mask = rtc.soft_mask(length, delay, end, schedule)
    assert mask.shape == (length,)
    assert ((mask >= 0) & (mask <= 1)).all()
    assert (np.diff(mask) <= 0).all()
    assert (mask[: min(delay, end, length)] == 1).all()
    assert (mask[min(end, length) :] == 0).all()


def test_masks_refuse_what_is_no_mask():
    with pytest.raises(ValueError, match="cosine"):
        rtc.soft_mask(8, 2, 5, "cosine")
    with pytest.raises(ValueError, match="-1"):
        rtc.soft_mask(8, -1, 5)


def test_guidance_weights_of_five_steps():
    weights = [rtc.guidance_weight(k / 5, 5.0) for k in range(5)]
    assert weights == pytest.approx([5, 4.25, 2.1667, 2.1667, 4.25], abs=1e-4)


def test_guidance_weight_equals_the_unsimplified_formula():
    for tau in np.linspace(0.01, 0.99, 50):
        r2 = (1 - tau) ** 2 / (tau**2 + (1 - tau) ** 2)
        assert rtc.guidance_weight(tau, math.inf) == pytest.approx((1 - tau) / (tau * r2))


X = np.array([[0.2], [-0.1]])
Y = np.array([[1.0], [0.0]])
W = np.array([1.0, 0.0])


def linear(x, tau):
    return np.array([[0.5 + x[1, 0]], [0.1 + 0.5 * x[0, 0]]])


def linear_vjp(x, tau):
    return linear(x, tau), lambda c: np.array([[0.5 * c[1, 0]], [c[0, 0]]])


def test_the_exact_product_and_the_identity_differ_as_in_the_reference():
    exact = rtc.guided_velocity(linear_vjp, X, 0.5, Y, W, 5.0)
    assert (X + 0.2 * exact).ravel() == pytest.approx([0.52, 0.06])
    identity = rtc.guided_identity_velocity(linear, X, 0.5, Y, W, 5.0)
    assert (X + 0.2 * identity).ravel() == pytest.approx([0.52, -0.06])


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_the_exact_product_is_the_gradient_of_the_weighted_error(seed, tau):
    rng = np.random.default_rng(seed)
    m, b = rng.normal(size=(6, 6)), rng.normal(size=6)
    x, y, w = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.uniform(size=3)

    def vjp(x, tau):
        s = m @ x.ravel() + b
        return np.tanh(s).reshape(x.shape), lambda c: (m.T @ (c.ravel() / np.cosh(s) ** 2)).reshape(x.shape)

    def loss(flat):
        v, _ = vjp(flat.reshape(3, 2), tau)
        return 0.5 * (w[:, None] * (y - flat.reshape(3, 2) - (1 - tau) * v) ** 2).sum()

    pulled = (rtc.guided_velocity(vjp, x, tau, y, w, 3.0) - vjp(x, tau)[0]) / rtc.guidance_weight(tau, 3.0)
    h = 1e-6
    slope = [(loss(x.ravel() + h * e) - loss(x.ravel() - h * e)) / (2 * h) for e in np.eye(6)]
    assert pulled.ravel() == pytest.approx(-np.array(slope), abs=1e-6)


def test_guidance_brings_the_committed_rows_nearer_and_leaves_a_zero_mask_alone():
    rng = np.random.default_rng(3)
    noise, clean, target = rng.normal(size=(3, 12, 4))

    def towards_clean(x, tau):  # the flow of a model that always answers `clean`
        return (clean - x) / (1 - tau)

    free = rtc.sample(towards_clean, noise, 10)
    assert free == pytest.approx(clean)
    mask = rtc.soft_mask(12, 4, 8, "exp")
    guided = rtc.sample_guided_identity(towards_clean, noise, 10, target, mask, 5.0)
    assert np.abs(guided - target)[:4].max() < np.abs(free - target)[:4].max()
    assert guided[8:] == pytest.approx(clean[8:])
    untouched = rtc.sample_guided_identity(towards_clean, noise, 10, target, np.zeros(12), 5.0)
    assert untouched == pytest.approx(clean)


def test_the_prefix_is_clean_at_every_step_and_comes_back_bit_equal():
    rng = np.random.default_rng(4)
    noise, committed = rng.normal(size=(10, 3)), rng.normal(size=(4, 3))
    seen = []

    def velocity(x, times):
        seen.append((x[:4].copy(), times.copy()))
        return np.ones_like(x)

    out = rtc.sample_prefix(velocity, noise, 5, committed)
    assert (out[:4] == committed).all()
    assert out[4:] == pytest.approx(noise[4:] + 1)
    assert len(seen) == 5
    for step, (rows, times) in enumerate(seen):
        assert (rows == committed).all()
        assert (times[:4] == 1).all()
        assert times[4:] == pytest.approx(step / 5)


def test_a_prefix_longer_than_the_chunk_is_refused():
    with pytest.raises(ValueError, match="11 rows"):
        rtc.sample_prefix(lambda x, t: x, np.zeros((10, 2)), 4, np.zeros((11, 2)))


@given(st.integers(1, 8), st.integers(1, 20), st.integers(0, 20))
def test_a_short_leftover_is_held_and_never_invented(k, horizon, delay):
    leftover = np.random.default_rng(k).normal(size=(k, 3)) + 5
    target = rtc.pad_target(leftover, horizon)
    assert target.shape == (horizon, 3)
    assert (target[:k] == leftover[:horizon]).all()
    assert (target[k:] == leftover[-1]).all()
    mask = rtc.soft_mask(horizon, delay, min(k, horizon))
    assert (mask[k:] == 0).all()  # what was never planned pulls at nothing, even where the delay is longer


def test_an_empty_leftover_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        rtc.pad_target(np.zeros((0, 3)), 8)
