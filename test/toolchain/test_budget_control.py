"""Control arithmetic: delay, the safe range of K, idle time, age, and deadlines, also against a simulated timeline."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vla_runtime.control.schedule import KRange, k_range
from vla_runtime.toolchain.budget import control_budget, delay_ticks, horizon_ticks


@pytest.mark.parametrize(
    "latency, ticks", [(32, 2), (97, 5), (124, 7), (194, 10), (413, 21), (491, 25), (20, 1), (0, 1)]
)
def test_delay_at_50_hz(latency, ticks):
    assert delay_ticks(latency, 50) == ticks


@pytest.mark.parametrize("horizon, step_s, ticks", [(50, 0.02, 49), (50, 1 / 30, 81), (16, 0.05, 37), (1, 0.2, 0)])
def test_horizon_in_ticks(horizon, step_s, ticks):
    assert horizon_ticks(horizon, step_s, 50) == ticks


@given(st.floats(0, 2000), st.integers(1, 120), st.floats(0.005, 0.2), st.floats(10, 200))
def test_the_safe_range_is_the_one_that_the_executor_keeps(latency_ms, horizon, step_s, control_hz):
    assume(horizon * step_s * control_hz > 1)
    result = control_budget(latency_ms, horizon=horizon, step_s=step_s, control_hz=control_hz)
    assert KRange(result.k_min, result.k_max) == k_range(latency_ms / 1e3, horizon, step_s, 1 / control_hz)


def test_a_latency_that_fits():
    result = control_budget(97, horizon=50, step_s=0.02)
    assert (result.delay_ticks, result.k_min, result.k_max, result.k) == (5, 5, 44, 5)
    assert result.safe and result.holds_on_slow and result.idle_ms == 0
    assert result.oldest_ms == pytest.approx(200)
    assert result.plans_per_s == pytest.approx(10)
    assert result.effective_hz == pytest.approx(50)


def test_a_chunk_too_short_to_bridge_the_delay_twice():
    result = control_budget(491, horizon=40, step_s=0.02)
    assert result.k_min > result.k_max and not result.safe
    assert result.idle_ms == pytest.approx((25 + 25 - 39) * 20)
    assert "no K is safe" in result.verdict


def test_a_plan_that_is_over_before_it_arrives_moves_nothing():
    result = control_budget(491, horizon=1, step_s=0.2)
    assert result.effective_hz == 0 and result.oldest_ms == 0
    assert "over before it arrives" in result.verdict


def test_k_outside_its_range_is_named_with_the_range():
    assert "K = 48 is outside 5 to 44" in control_budget(97, horizon=50, step_s=0.02, k=48).verdict
    below = control_budget(97, horizon=50, step_s=0.02, k=2)
    assert not below.safe
    assert below.plans_per_s == pytest.approx(10), "one request in flight: the next one waits for the answer"


def test_stop_and_go_stands_still_for_the_delay():
    result = control_budget(97, horizon=50, step_s=0.02, asynchronous=False)
    assert (result.k, result.idle_ms) == (50, pytest.approx(100))
    assert result.effective_hz == pytest.approx(50 * 50 / 55)
    assert result.oldest_ms == pytest.approx(1100)
    assert result.safe and result.holds_on_slow
    assert not control_budget(97, horizon=50, step_s=0.02, asynchronous=False, k=51).safe


def test_the_slow_branch_decides_not_the_mean():
    result = control_budget(63.7, 98.7, horizon=50, step_s=0.02, deadline_ms=80)
    assert result.holds_on_mean and not result.holds_on_slow
    assert result.delay_ticks == 5 and result.mean_delay_ticks == 4
    assert "slow branch (99 ms) misses its deadline of 80 ms" in result.verdict


def test_without_a_deadline_the_end_of_the_running_plan_is_one():
    result = control_budget(97, horizon=50, step_s=0.02, k=30)
    assert result.deadline_ms == pytest.approx((49 - 30) * 20)
    assert not control_budget(500, horizon=50, step_s=0.02, k=26).holds_on_slow


@pytest.mark.parametrize(
    "changes, quoted",
    [
        ({"mean_ms": -1.0}, "-1.0"),
        ({"control_hz": 0.0}, "0.0"),
        ({"horizon": 0}, "0"),
        ({"step_s": -0.1}, "-0.1"),
        ({"k": 0}, "0"),
        ({"deadline_ms": -5.0}, "-5.0"),
        ({"slow_ms": 10.0}, "10.0"),
        ({"step_s": 0.0001, "horizon": 3}, "0.0001"),
    ],
)
def test_nonsense_is_quoted(changes, quoted):
    arguments = {"mean_ms": 50.0, "horizon": 50, "step_s": 0.02, **changes}
    with pytest.raises(ValueError, match=quoted.replace(".", r"\.")):
        control_budget(**arguments)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 60), st.integers(1, 120), st.integers(1, 130))
def test_the_arithmetic_agrees_with_a_timeline(delay, horizon, k):
    """Play requests and answers tick by tick, and count what the closed form claims."""
    result = control_budget(delay * 20.0, horizon=horizon, step_s=0.02, k=k)
    cycle = max(k, delay)
    plan, arrivals, idle, oldest, cycles = None, {}, 0, 0, 6
    for tick in range(cycle * cycles + delay):
        if tick % cycle == 0:
            arrivals[tick + delay] = tick
        plan = arrivals.pop(tick, plan)
        if tick < delay + cycle:
            continue  # the first cycle has no plan before it
        age = tick - plan
        if age + 1 >= horizon:  # no waypoint left to go to in this tick
            idle += 1
        else:
            oldest = max(oldest, age + 1)
    assert idle * 20 == pytest.approx(result.idle_ms * (cycles - 1))
    assert oldest * 20 == pytest.approx(result.oldest_ms)
    if result.safe:
        assert idle == 0
