"""The executor on simulated time, and the field cases that concern it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.trajectory import Trajectory

PERIOD = 0.02
BLENDS = ["cut", "crossfade", "rtc", "ensemble"]


def wave(amplitude=0.5, rate=1.5):
    return lambda t, n: amplitude * np.column_stack((np.sin(rate * t), np.cos(rate * t)))


def ramp(slope=0.2, offset=lambda n: 0.0):
    return lambda t, n: np.column_stack((slope * (t - 50.0) + offset(n),) * 2)


def resting(t, n):
    return np.full((len(t), 2), 0.3)


# --- the stream ------------------------------------------------------------------------------------------------------


def test_a_smooth_plan_is_executed_to_the_letter_without_lag(stream):
    s = stream(wave(), latency_s=0.1).run(6.0)
    t, p = s.executed()
    late = t > 52.0
    assert np.abs(p[late] - s.plan(t[late], 0)).max() < 2e-4


@pytest.mark.parametrize("dt", [0.02, 0.1, 1 / 30])
def test_the_policys_step_and_the_control_period_are_two_numbers(stream, dt):
    s = stream(wave(), dt=dt, horizon=round(1.5 / dt), latency_s=0.13).run(6.0)
    t, p = s.executed()
    late = t > 52.5
    assert np.abs(p[late] - s.plan(t[late], 0)).max() < 0.02 * dt / 0.1 + 2e-3


def test_jitter_of_the_ticks_does_not_show_in_the_motion(stream):
    rng = np.random.default_rng(1)
    s = stream(wave(), latency_s=0.1).run(6.0, jitter=lambda: rng.uniform(-0.002, 0.002))
    t, p = s.executed()
    late = t > 52.0
    assert np.abs(p[late] - s.plan(t[late], 0)).max() < 2e-4


@pytest.mark.parametrize("blend", BLENDS)
def test_every_message_has_the_form_and_the_next_one_begins_on_it(stream, blend):
    rng = np.random.default_rng(2)
    s = stream(lambda t, n: wave()(t, n) + rng.normal(0.0, 0.02, 2), latency_s=0.1, blend=blend, max_jump=0.0).run(
        5.0, jitter=lambda: rng.uniform(-0.001, 0.001)
    )
    said = [x for x in s.said if x is not None]
    assert len(said) > 240
    for one, following in zip(said, said[1:]):
        p, v = one.sample(following.start)
        assert following.positions[0] == pytest.approx(p, abs=1e-12)
        assert following.velocities[0] == pytest.approx(v, abs=1e-12)
        assert following.fault() is None
        assert following.joint_names == s.limits.joint_names
        assert 0.15 < following.times[following.brake_from] <= 0.2 + 1e-9


def test_the_window_shrinks_to_what_the_plan_has_and_then_there_is_silence(stream):
    s = stream(wave(), horizon=40, latency_s=0.1).run(0.5)
    plan_end = s.requests[-2].stamp + 39 * 0.02
    s.answering = False
    s._due.clear()
    s.run(2.0)
    windows = [(x.start, x.times[x.brake_from]) for x in s.said if x is not None]
    assert all(start + window <= plan_end + 1e-9 for start, window in windows)
    assert windows[-1][1] < 0.05
    assert s.said[-1] is None
    snapshot = s.executor.snapshot()
    assert snapshot["silent"] == "plan_used_up"
    assert snapshot["plans_used_up"] == 1
    # What was said last still leads to rest.
    assert (s.command.velocities[-1] == 0).all()


def test_nothing_is_said_before_the_first_plan_and_the_cause_is_named(stream):
    s = stream(wave())
    s.answering = False
    s.run(0.2)
    assert s.said == [None] * 10
    assert s.executor.snapshot()["silent"] == "no_plan"


def test_stale_joint_states_mean_silence_until_they_are_fresh(stream):
    s = stream(wave()).run(1.0)
    fresh = s.joints
    last = fresh()
    s.joints = lambda: last
    s.run(0.3)
    assert s.said[-1] is None
    assert s.executor.snapshot()["silent"] == "joint_state"
    s.joints = lambda: None
    assert s.tick().planned is None
    s.joints = fresh
    assert s.tick().planned is not None


def test_out_of_command_each_plan_begins_at_the_command(stream):
    s = stream(wave()).run(1.0)
    s.in_command = False
    held = s.command
    s.run(0.5)
    for planned in s.said[-10:]:
        p, v = held.sample(planned.start)
        assert planned.positions[0] == pytest.approx(p, abs=1e-12)
        assert planned.velocities[0] == pytest.approx(v, abs=1e-12)
    s.command, s.in_command = s.said[-1], True
    before = s.command
    planned = s.tick().planned
    assert planned.positions[0] == pytest.approx(before.sample(planned.start)[0], abs=1e-12)


def test_a_tick_that_does_not_plan_asks_all_the_same_and_the_next_one_begins_at_the_command(stream):
    s = stream(wave()).run(1.0)
    s.in_command = False
    tick = s.executor.tick
    s.executor.tick = lambda *args: tick(*args, False)
    before, asked = s.executor.snapshot(), len(s.requests)
    s.run(0.6)
    assert s.said[-30:] == [None] * 30 and len(s.requests) > asked
    after = s.executor.snapshot()
    assert (after["silences"], after["silent"]) == (before["silences"], before["silent"])  # nothing is wrong
    s.executor.tick = tick
    for planned in (s.tick().planned for _ in range(5)):
        assert planned.positions[0] == pytest.approx(s.command.sample(planned.start)[0], abs=1e-12)


def test_what_nobody_judges_is_planned_at_one_tick_in_five(stream):
    """The node and the simulated world ask the executor: the rule stood in both."""
    s = stream(wave()).run(1.0)
    s.in_command = False
    tick = s.executor.tick
    s.executor.tick = lambda *args: tick(*args, s.executor.plans(False))
    s.run(1.0)
    assert [planned is not None for planned in s.said[-50:]].count(True) == 10
    assert all(sum(planned is not None for planned in s.said[-50 + k : -45 + k]) == 1 for k in range(45))
    assert s.executor.plans(True)


def test_after_a_flush_nothing_of_before_is_left(stream):
    s = stream(wave()).run(1.0)
    flying = s.requests[-1].request_id
    s.executor.flush("deactivated")
    s._due.clear()
    s.command, s.position = None, np.array([0.1, 0.2])
    assert s.answer(flying, s.now - 0.1).reason == "old_request"
    tick = s.tick()
    assert tick.planned is None
    assert tick.request is not None
    s.run(0.2)
    first = next(x for x in s.said[-10:] if x is not None)
    assert first.positions[0] == pytest.approx([0.1, 0.2])
    assert s.executor.snapshot()["flushes"] == {"deactivated": 1}


# --- how a new plan takes over ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("blend", ["crossfade", "rtc", "ensemble"])
def test_an_offset_leaves_no_saw_tooth_where_plans_rise_now_fast_and_now_slowly(stream, make_limits, blend):
    """Monotone is enough, a straight line is not needed: plans that rise at 0.05 to 0.75 rad/s, 0.05 rad apart."""

    def uneven(times, n):
        rise = 0.4 * times - 20.0 - 0.35 * np.cos(times) + 0.05 * (-1) ** n
        return np.column_stack((rise, -rise))

    s = stream(uneven, blend=blend, horizon=60, limits=make_limits(lower=-30.0, upper=30.0)).run(6.0)
    assert s.executor.snapshot()["accepted"] >= 25
    _, p = s.executed()
    assert np.diff(p[20:, 0]).min() >= -1e-12
    assert np.diff(p[20:, 1]).max() <= 1e-12


@pytest.mark.parametrize("blend", ["crossfade", "rtc", "ensemble"])
@pytest.mark.parametrize("slope", [0.05, 0.2, -0.5, 1.0])
def test_an_offset_at_every_change_leaves_no_backward_saw_tooth(stream, blend, slope):
    s = stream(ramp(slope, lambda n: 0.05 * (-1) ** n), blend=blend, horizon=60).run(2.0)
    assert s.executor.snapshot()["accepted"] >= 8
    _, p = s.executed()
    steps = np.diff(p[20:], axis=0) * np.sign(slope)
    assert steps.min() >= -1e-12


@pytest.mark.parametrize("blend", ["crossfade", "rtc", "ensemble"])
def test_standing_still_is_no_reason_to_keep_an_offset(stream, blend):
    s = stream(lambda t, n: np.full((len(t), 2), 0.3 if n < 3 else 0.25), blend=blend, ensemble_plans=1).run(2.0)
    assert s.command.positions[0] == pytest.approx([0.25, 0.25], abs=1e-6)


def test_a_crossfade_takes_its_time_and_a_cut_does_not(stream):
    def settling(**how):
        s = stream(lambda t, n: np.full((len(t), 2), 0.3 if n < 3 else 0.31), **how).run(2.0)
        t, p = s.executed()
        off = np.abs(p[:, 0] - 0.31) > 1e-4
        moved = p[:, 0] > 0.3 + 1e-6
        return t[off][-1] - t[moved][0]

    assert settling(blend="cut") < 0.12
    assert settling(blend="crossfade", blend_s=0.4) == pytest.approx(0.4, abs=0.06)
    assert settling(blend="rtc", rtc_blend_s=0.2) == pytest.approx(0.2, abs=0.06)


def test_a_crossfade_is_smoother_than_a_cut(stream):
    def strongest(blend):
        s = stream(lambda t, n: wave()(t, n) + 0.005 * (-1) ** n, blend=blend, max_jump=0.0).run(3.0)
        said = [x for x in s.said if x is not None]
        return max(np.abs(x.acceleration(x.start)).max() for x in said[20:])

    assert strongest("crossfade") < 0.6 * strongest("cut")


def test_a_gripper_is_stepped_to_the_newest_plan_and_never_mixed(stream, make_limits):
    limits = make_limits(discrete=(1,), velocity=5.0, acceleration=60.0, jerk=3000.0)
    s = stream(
        lambda t, n: np.column_stack((0.2 * np.sin(t), np.full(len(t), 1.0 if n % 2 else 0.0))),
        limits=limits,
        blend="ensemble",
        k=25,
    ).run(4.0)
    t, p = s.executed()
    moving = (p[:, 1] > 1e-6) & (p[:, 1] < 1.0 - 1e-6)
    # Each step of 1 rad at 60 rad/s^2 and 5 rad/s takes 0.29 s; a mean of plans would stay in between for ever.
    changes = s.executor.snapshot()["accepted"] - 1
    assert moving.mean() * (t[-1] - t[0]) < changes * 0.36


def test_the_blend_can_be_changed_while_it_runs(stream):
    s = stream(wave())
    for blend in BLENDS * 2:
        s.executor.retune(executor_settings(blend=blend))
        s.run(0.5)
    said = [x for x in s.said if x is not None]
    for one, following in zip(said, said[1:]):
        assert following.positions[0] == pytest.approx(one.sample(following.start)[0], abs=1e-12)


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_request_says_what_will_be_executed_until_the_answer(stream):
    s = stream(wave(), latency_s=0.1, k=20).run(3.0)
    request = s.requests[-2]
    after = request.times >= -1e-9
    assert request.committed == 5
    executed_t, executed_p = s.executed()
    for t, p in zip(request.times[after][: request.committed], request.positions[after]):
        at = np.argmin(np.abs(executed_t - request.stamp - t))
        assert p == pytest.approx(executed_p[at], abs=2e-3)
    assert request.times[0] == pytest.approx(-0.2)


def test_before_the_first_plan_a_request_commits_nothing(stream):
    s = stream(wave())
    request = s.tick().request
    assert request.committed == 0
    assert len(request.times) == 0


def test_out_of_command_what_the_fallback_does_is_committed(stream):
    s = stream(wave()).run(1.0)
    s.in_command = False
    s.command = Trajectory(s.now, s.limits.joint_names, np.zeros(1), np.full((1, 2), 0.4), np.zeros((1, 2)))
    s.run(0.5)
    request = s.requests[-1]
    assert request.positions[request.times >= 0] == pytest.approx(0.4)


def test_a_lost_answer_is_given_up_and_asked_anew(stream):
    s = stream(wave(), request_timeout_s=0.5, max_jump=0.0).run(1.0)
    s.answering = False
    s._due.clear()
    count = len(s.requests)
    s.run(2.0)
    assert len(s.requests) - count == 4
    assert {r.cause for r in s.requests[count:]} == {"timeout", "k"} or s.requests[-1].cause == "timeout"
    s.answering = True
    s.run(1.0)
    assert s.said[-1] is not None
    assert s.executor.snapshot()["request_timeouts"] >= 3


def test_an_unsafe_k_is_refused_with_the_range(stream):
    s = stream(wave(), latency_s=0.2, horizon=50, k=20).run(5.0)
    executor = s.executor
    assert executor.snapshot()["k_range"] == "10 to 39"
    for k in (9, 40):
        reason = executor.refuses(executor_settings(k=k))
        assert "10 to 39" in reason
        assert f"k = {k}" in reason
        with pytest.raises(ValueError, match="10 to 39"):
            executor.retune(executor_settings(k=k))
    executor.retune(executor_settings(k=39))
    assert executor.k == 39
    assert executor.refuses(executor_settings(k=500, queue_threshold=0.5)) is None


@pytest.mark.parametrize("clamp", [True, False])
def test_a_k_that_drift_made_unsafe_is_reported_and_by_parameter_clamped(stream, clamp):
    s = stream(wave(), latency_s=0.06, k=42, clamp_k=clamp).run(5.0)
    assert s.executor.snapshot()["k_unsafe"] is False
    s.latency = 0.23
    s.run(15.0)
    snapshot = s.executor.snapshot()
    assert snapshot["k_unsafe"] is True
    assert snapshot["k_range"] == "12 to 37"
    assert (snapshot["k"], snapshot["k_set"]) == ((37, 42) if clamp else (42, 42))


def test_one_answer_later_than_the_horizon_does_not_make_requests_rare(stream):
    """Found by the fault campaign: the 99th percentile of few delays is the latest, and K went from 10 to 51 of 50."""
    s = stream(wave(), latency_s=0.06, horizon=50, k=10, request_timeout_s=3.0).run(1.0)
    s.latency = 1.05
    s.run(0.3)
    s.latency = 0.06
    s.run(1.5)
    begun = len(s.said)
    s.run(4.0)
    assert s.executor.snapshot()["k_range"] == "none"
    assert all(said is not None for said in s.said[begun:])


@pytest.mark.parametrize("latency", [0.1, 0.2, 0.3])
def test_an_unbroken_stream_with_a_safe_k(stream, latency):
    s = stream(wave(), latency_s=latency, horizon=50, k=round(latency / PERIOD) + 2).run(6.0)
    first = next(i for i, x in enumerate(s.said) if x is not None)
    assert all(x is not None for x in s.said[first:])


def test_an_early_request_when_the_arm_is_pushed_away(stream):
    s = stream(wave(), k=40, mismatch=0.1).run(3.0)
    normal = s.joints

    def pushed():
        sample = normal()
        return type(sample)(sample.t, sample.position + 0.3, sample.velocity)

    s.joints = pushed
    count = len(s.requests)
    s.run(0.1)
    assert [r.cause for r in s.requests[count:]] == ["mismatch"]
    assert s.executor.snapshot()["triggers"] == {"mismatch": 1}
    assert s.executor.snapshot()["mismatch"] > 0.2


def test_others_may_ask_early(stream):
    s = stream(wave(), k=40).run(3.0)
    s.executor.note("vision")
    count = len(s.requests)
    s.run(0.4)
    assert s.requests[count].cause == "vision"


def test_causes_from_outside_do_not_fill_the_memory(stream):
    s = stream(wave())
    for i in range(200):
        s.executor.flush(f"jumped by {i} ms")
        s.executor.note(f"odd {i}")
        s.tick()
    snapshot = s.executor.snapshot()
    assert sum(snapshot["flushes"].values()) == 200
    assert len(snapshot["flushes"]) <= 33
    assert len(snapshot["triggers"]) <= 33


def test_a_refused_plans_stamp_does_not_spoil_the_delay_estimate(stream):
    s = stream(wave(), latency_s=0.1).run(2.0)
    planning = s.executor.snapshot()["delay_planning_ms"]
    asked = len(s.requests)
    while len(s.requests) == asked:
        s.tick()
    request = s.requests[-1]
    s._due.clear()
    assert s.answer(request.request_id, s.now - 1.5).reason in ("elapsed", "old_observation")
    assert s.executor.snapshot()["delay_planning_ms"] <= planning + 1


def test_a_measured_state_that_is_no_number_is_no_state(stream):
    s = stream(wave()).run(1.0)
    good = s.joints
    s.joints = lambda: type(good())(s.now, np.array([np.nan, 0.0]), np.zeros(2))
    assert s.tick().planned is None
    assert s.executor.snapshot()["silent"] == "joint_state"
    s.joints = good
    assert s.tick().planned is not None


def test_a_jittering_policy_can_be_smoothed_without_lag(stream):
    rng = np.random.default_rng(5)

    def roughness(**how):
        s = stream(lambda t, n: wave()(t, n) + rng.normal(0.0, 0.01, (len(t), 2)), max_jump=0.0, **how).run(4.0)
        t, p = s.executed()
        late = t > 52.0
        said = [x for x in s.said if x is not None]
        strength = np.mean([np.abs(x.acceleration(x.start)).mean() for x in said[50:]])
        return strength, np.abs(p[late] - wave()(t[late], 0)).mean()

    rough, off = roughness()
    smooth, less_off = roughness(smoothing_s=0.06)
    assert smooth < 0.5 * rough
    assert less_off < off


# --- field cases -----------------------------------------------------------------------------------------------------


def test_first_plan_after_a_slow_first_inference(stream):
    """First inference 0.7 s at 30 Hz: only what has elapsed is dropped, and the arm starts where it is."""
    measured = np.array([0.31, -0.12])
    s = stream(ramp(0.3), latency_s=0.7, dt=1 / 30, horizon=50, position=measured).run(0.9)
    first = next(x for x in s.said if x is not None)
    assert first.positions[0] == pytest.approx(measured)
    assert (first.velocities[0] == 0).all()
    assert s.executor.snapshot()["waypoints_dropped"] == 21  # 0.7 s * 30
    _, p = s.executed()
    assert np.abs(p[0] - measured).max() <= s.limits.velocity.max() * PERIOD


def test_the_robot_stands_still_and_is_asked_all_the_same(stream):
    s = stream(resting, k=10, latency_s=0.1).run(4.0)
    ticks = [round((r.stamp - s.requests[0].stamp) / PERIOD) for r in s.requests]
    assert ticks == list(range(0, 200, 10))


def test_no_plan_from_an_observation_older_than_one_k(stream):
    s = stream(wave(), k=25, horizon=50)
    request = s.tick().request
    s._due.clear()
    s.now += 0.1
    assert s.answer(request.request_id, request.stamp - 25 * PERIOD - 0.01).reason == "old_observation"


def test_latency_in_steps(stream):
    """245 ms at 40 ms a step: the waypoint due is number 7."""
    s = stream(lambda t, n: np.column_stack((np.arange(len(t)) * 0.01,) * 2), dt=0.04, position=[0.07, 0.07])
    request = s.tick().request
    s._due.clear()
    s.now = request.stamp + 0.245
    assert s.answer(request.request_id, request.stamp) is None
    assert s.executor.snapshot()["waypoints_dropped"] == 7
    planned = s.executor.tick(s.now + 0.035, s.joints(), None, True).planned
    assert planned.sample(request.stamp + 0.48)[0] == pytest.approx([0.12, 0.12], abs=1e-3)


@pytest.mark.parametrize("blend", ["crossfade", "rtc", "ensemble"])
def test_output_never_runs_backwards_on_a_ramp_that_comes_late(stream, blend):
    """A ramp, each plan five rows late (stamped by the time inference ended, as some servers do)."""
    s = stream(lambda t, n: ramp(0.4)(t - 5 * 0.02 * (n % 2), n), blend=blend, latency_s=0.1).run(3.0)
    _, p = s.executed()
    assert np.diff(p[10:], axis=0).min() >= -1e-12


def test_a_late_answer_is_dropped_by_its_id_and_counted(stream):
    s = stream(wave(), request_timeout_s=0.3)
    s.answering = False
    s.run(0.5)
    old, newer = s.requests[0], s.requests[1]
    assert s.answer(old.request_id, old.stamp).reason == "old_request"
    assert s.answer(newer.request_id, newer.stamp) is None
    assert s.answer(newer.request_id, newer.stamp + 0.01).reason == "old_request"  # a duplicate
    assert s.executor.snapshot()["refused"]["old_request"] == 2


def test_one_nan_and_nothing_of_the_plan_is_executed(stream):
    s = stream(wave()).run(1.0)
    running = s.executor.snapshot()["plan"]

    def poisoned(t, n):
        positions = wave()(t, n) + 0.3
        positions[40, 1] = np.nan
        return positions

    good, s.plan = s.plan, poisoned
    before = len(s.executed()[0])
    s.run(0.3)
    assert s.executor.snapshot()["refused"]["not_finite"] >= 1
    assert s.executor.snapshot()["plan"] == running
    s.plan = good
    s.run(1.0)
    t, p = s.executed()
    assert np.abs(p[before:] - good(t[before:], 0)).max() < 0.01
    assert s.said[-1] is not None


def test_degrees_are_refused_and_named(stream):
    s = stream(lambda t, n: np.degrees(wave(1.0)(t, n)), position=np.zeros(2)).run(0.3)
    assert "look like degrees" in s.executor.snapshot()["last_refusal"]
    assert all(x is None for x in s.said)


def test_a_plan_all_in_the_past_is_never_published(stream):
    s = stream(wave(), horizon=20, latency_s=0.5, request_timeout_s=2.0).run(2.0)
    assert all(x is None for x in s.said)
    assert s.executor.snapshot()["refused"]["elapsed"] >= 3


def test_the_policys_joint_order_is_not_ours(stream):
    s = stream(resting, position=[0.3, 0.6])
    request = s.tick().request
    positions = np.tile([0.6, 0.3], (50, 1))
    chunk = ActionChunk(request.stamp, 0.02, ("j1", "j0"), positions, request.request_id, s.now)
    s._due.clear()
    assert s.executor.offer(s.now, chunk) is None
    assert s.tick().planned.positions == pytest.approx(np.tile([0.3, 0.6], (11, 1)))


@given(st.floats(0.02, 0.6), st.integers(1, 30), st.sampled_from([0.02, 0.05]))
@settings(max_examples=15)
def test_what_is_executed_is_due_whatever_the_latency(stream, latency, k, dt):
    """The plan is the time itself: position minus time tells which waypoint was executed when."""
    s = stream(
        lambda t, n: np.column_stack((0.5 * (t - 52.0),) * 2),
        latency_s=latency,
        dt=dt,
        horizon=round(1.4 / dt),
        k=k,
        max_jump=0.0,
    ).run(3.0)
    t, p = s.executed()
    if len(t):
        late = t > t[0] + 1.4
        assert np.abs(p[late] - s.plan(t[late], 0)).max(initial=0.0) < 1e-3


def test_counters_are_consistent_and_memory_is_bounded(stream):
    s = stream(wave(), latency_s=0.1, blend="ensemble").run(60.0)
    snapshot = s.executor.snapshot()
    assert snapshot["ticks"] == 3000
    assert snapshot["accepted"] + snapshot["refused_total"] == len(s.refusals)
    assert snapshot["requests"] == len(s.requests)
    assert len(s.executor._history.arrays()[0]) < 40
    assert len(s.executor._navigator._stack.plans) <= 8
