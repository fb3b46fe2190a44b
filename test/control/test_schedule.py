import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.schedule import DelayEstimate, KRange, Schedule, k_range

PERIOD = 0.02


@pytest.mark.parametrize(
    ("delay_ms", "ticks"), [(32, 2), (97, 5), (124, 7), (194, 10), (413, 21), (491, 25), (20, 1), (0, 1), (40, 2)]
)
def test_delays_in_ticks(delay_ms, ticks):
    assert k_range(delay_ms / 1000, 101, PERIOD, PERIOD) == KRange(ticks, 100 - ticks)


def test_the_horizon_counts_in_control_ticks():
    assert k_range(0.1, 16, 0.1, PERIOD) == KRange(5, 70)  # 1.5 s from the first waypoint to the last


def test_a_range_may_be_empty_and_says_so():
    empty = k_range(0.413, 30, PERIOD, PERIOD)
    assert 20 not in empty
    assert str(empty) == "none"
    assert empty.clamp(10) == 10  # one is in flight: no K asks too often
    assert empty.clamp(100) == empty.low


@given(st.floats(0.0, 1.0), st.integers(2, 200), st.integers(1, 300))
def test_a_clamped_k_is_safe_where_any_is(delay, horizon, k):
    safe = k_range(delay, horizon, PERIOD, PERIOD)
    if safe.low <= safe.high:
        assert safe.clamp(k) in safe
        assert k not in safe or safe.clamp(k) == k


def estimate(**changes):
    return DelayEstimate(**{"initial_s": 0.1, "window": 200, "warmup_answers": 1, "idle_gap_s": 2.0, **changes})


def feed(delay, latencies, start=0.0):
    now = start
    for latency in latencies:
        delay.answered(now, now, now + latency)
        now += latency
    return now


def test_a_cold_start_is_left_out_and_the_estimate_comes_back():
    delay = estimate()
    feed(delay, [0.7] + [0.3] * 200)
    assert delay.planning == pytest.approx(0.3)
    assert delay.high == pytest.approx(0.3)
    assert delay.left_out == 1


def test_until_there_is_better_the_cold_start_counts():
    delay = estimate()
    assert delay.planning == 0.1
    feed(delay, [0.7])
    assert delay.planning == pytest.approx(0.7)
    assert delay.high == pytest.approx(0.7)


def test_planning_takes_the_largest_of_the_last_ten():
    delay = estimate(warmup_answers=0)
    feed(delay, [0.1] * 20 + [0.25] + [0.1] * 9)
    assert delay.planning == pytest.approx(0.25)
    feed(delay, [0.1], start=100.0 - 1.9)
    assert delay.high == pytest.approx(0.25)  # the largest of 30 is their 99th percentile


def test_after_ten_more_the_spike_is_over_and_a_percentile_forgives_one_in_two_hundred():
    delay = estimate(warmup_answers=0)
    feed(delay, [0.25] + [0.1] * 199)
    assert delay.planning == pytest.approx(0.1)
    assert delay.high == pytest.approx(0.1)


def test_it_grows_as_the_delay_drifts():
    delay = estimate()
    feed(delay, [0.1] * 100 + [0.2] * 3)
    assert delay.planning == pytest.approx(0.2)
    assert delay.high == pytest.approx(0.2)


def test_an_answer_after_an_idle_gap_is_left_out():
    delay = estimate()
    now = feed(delay, [0.1] * 30)
    feed(delay, [0.9], start=now + 5.0)
    assert delay.planning == pytest.approx(0.1)
    assert delay.left_out == 2


def test_a_restart_expects_a_warm_up_again():
    delay = estimate()
    now = feed(delay, [0.1] * 30)
    delay.restarted()
    feed(delay, [0.8, 0.1], start=now)
    assert delay.planning == pytest.approx(0.1)


def test_a_delay_counts_from_the_observation():
    delay = estimate(warmup_answers=0)
    delay.answered(sent=10.0, t0=9.95, received=10.1)
    assert delay.planning == pytest.approx(0.15)


def run(schedule, ticks, k=10, answer_after=None, threshold=0.0, left=None, timeout=1.0):
    """Ticks at which requests go out; each answered ``answer_after`` ticks later (None: never)."""
    sent, due = [], {}
    for tick in range(ticks):
        now = 100.0 + tick * PERIOD
        if tick in due:
            schedule.answered(due.pop(tick))
        cause = schedule.due(now, k, threshold, left(tick) if left else None, timeout)
        if cause:
            request_id = schedule.send(now, cause)
            sent.append((tick, cause))
            if answer_after is not None:
                due[tick + answer_after] = request_id
    return sent


def test_a_request_every_k_ticks():
    assert [t for t, _ in run(Schedule("e", PERIOD), 41, answer_after=5)] == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("k", [1, 2, 7, 33])
def test_every_k_is_kept_without_drift(k):
    ticks = [t for t, _ in run(Schedule("e", PERIOD), 400, k=k, answer_after=1)]
    assert {b - a for a, b in zip(ticks, ticks[1:])} == {k}


def test_one_request_in_flight_and_the_next_as_soon_as_it_is_answered():
    schedule = Schedule("e", PERIOD)
    assert [t for t, _ in run(schedule, 45, answer_after=14)] == [0, 14, 28, 42]
    assert schedule.counts["requests_late"] == 3


def test_a_request_without_an_answer_is_given_up():
    schedule = Schedule("e", PERIOD)
    sent = run(schedule, 160, timeout=1.0)
    assert sent == [(0, "k"), (50, "timeout"), (100, "timeout"), (150, "timeout")]
    assert schedule.counts["request_timeouts"] == 3


def test_ids_count_up_within_the_epoch_and_only_the_one_in_flight_is_answered():
    schedule = Schedule("cafe", PERIOD)
    first = schedule.send(1.0, "k")
    assert first == "cafe:0"
    assert schedule.answered("cafe:1") is None
    assert schedule.answered(first).sent == 1.0
    assert schedule.answered(first) is None  # a duplicate
    second = schedule.send(2.0, "k")
    assert second == "cafe:1"
    assert schedule.answered(first) is None


def test_a_threshold_asks_when_little_of_the_plan_is_left():
    sent = run(Schedule("e", PERIOD), 60, k=1000, answer_after=3, threshold=0.5, left=lambda t: 1.0 - (t % 20) / 20)
    assert [t for t, _ in sent][:2] == [11, 14]
    assert {cause for _, cause in sent} == {"threshold"}


def test_without_a_plan_a_threshold_asks_at_once():
    assert run(Schedule("e", PERIOD), 1, threshold=0.5)[0] == (0, "threshold")


def test_a_trigger_asks_before_its_turn_but_waits_for_the_answer_in_flight():
    schedule = Schedule("e", PERIOD)
    request_id = schedule.send(0.0, "k")
    schedule.trigger("mismatch")
    schedule.trigger("effort")
    assert schedule.due(0.02, 50, 0.0, None, 1.0) is None
    schedule.answered(request_id)
    assert schedule.due(0.04, 50, 0.0, None, 1.0) == "mismatch"
    schedule.send(0.04, "mismatch")
    assert schedule.causes == {"k": 1, "mismatch": 1}
    schedule.answered("e:1")
    assert schedule.due(0.06, 50, 0.0, None, 1.0) is None


def test_forgotten_means_asked_again_at_once():
    schedule = Schedule("e", PERIOD)
    schedule.send(0.0, "k")
    schedule.forget()
    assert schedule.outstanding is None
    assert schedule.due(0.02, 10, 0.0, None, 1.0) == "k"
