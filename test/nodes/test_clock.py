"""Stamps and steady seconds, with a ROS clock that jumps."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.nodes.clock import HELD_NS, MEMORY_S, NANO, QUIET_S, SIMULATED_STEP_S, StampClock

EPOCH_NS = 1_790_000_000 * NANO


class Clocks:
    """A steady clock and a ROS clock that tests move by hand."""

    def __init__(self):
        self.steady = 100.0
        self.shift_ns = EPOCH_NS

    def ros_ns(self) -> int:
        return self.shift_ns + round(self.steady * NANO)

    def stamp(self, age_s: float = 0.0) -> int:
        return self.ros_ns() - round(age_s * NANO)


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def clock(clocks):
    return StampClock(clocks.ros_ns, lambda: clocks.steady)


def test_a_stamp_has_the_age_it_says(clock, clocks):
    assert clock.to_steady(clocks.stamp(0.25)) == pytest.approx(99.75, abs=1e-6)


@given(st.floats(0.0, 1e6), st.floats(-3.0, 3.0))
@settings(deadline=None)
def test_there_and_back_again(steady, offset):
    clocks = Clocks()
    clocks.steady = steady
    clock = StampClock(clocks.ros_ns, lambda: clocks.steady)
    assert clock.to_steady(clock.to_stamp(steady + offset)) == pytest.approx(max(steady + offset, -1e12), abs=1e-6)


def test_slewing_is_no_jump(clock, clocks):
    for _ in range(1000):
        clocks.steady += 0.02
        clocks.shift_ns += 10_000
        assert clock.watch() is None
    assert clock.jumps == 0
    assert clock.to_steady(clocks.stamp(0.1)) == pytest.approx(clocks.steady - 0.1, abs=HELD_NS / NANO)


def test_the_jitter_of_reading_two_clocks_does_not_redate_what_was_dated(clock, clocks):
    stamp = clocks.stamp()
    dated = {clock.to_steady(stamp)}
    for shift_ns in (1_000, -2_500, 15_000, -15_000):
        clocks.shift_ns = EPOCH_NS + shift_ns
        dated.add(clock.to_steady(stamp))
    assert len(dated) == 1
    clocks.shift_ns = EPOCH_NS + 2 * HELD_NS  # more than jitter: the clock was slewed
    assert clock.to_steady(stamp) == pytest.approx(dated.pop() - 2 * HELD_NS / NANO, abs=1e-8)


@pytest.mark.parametrize("size_s", [-5.0, 5.0, 0.05, -0.05])
def test_a_jump_is_reported_once_with_its_size(clock, clocks, size_s):
    clock.watch()
    clocks.steady += 0.02
    clocks.shift_ns += round(size_s * NANO)
    jump = clock.watch()
    assert jump.size_s == pytest.approx(size_s, abs=1e-6)
    assert f"{size_s:+.3f}" in str(jump)
    assert clock.watch() is None
    assert clock.jumps == 1


@pytest.mark.parametrize("size_s", [-5.0, 5.0])
def test_a_jump_seen_by_a_conversion_is_still_reported(clock, clocks, size_s):
    clock.watch()
    clocks.shift_ns += round(size_s * NANO)
    clock.to_steady(clocks.stamp())
    assert clock.watch() is not None


@pytest.mark.parametrize("size_s", [-5.0, 5.0])
def test_messages_in_flight_over_a_jump_keep_their_age(clock, clocks, size_s):
    clock.watch()
    sent = clocks.stamp()
    clocks.steady += 0.015
    clocks.shift_ns += round(size_s * NANO)
    assert clock.to_steady(sent) == pytest.approx(clocks.steady - 0.015, abs=1e-6)
    assert clock.to_steady(clocks.stamp(0.01)) == pytest.approx(clocks.steady - 0.01, abs=1e-6)


@pytest.mark.parametrize("size_s", [-5.0, 5.0])
def test_after_a_jump_a_stamp_a_little_ahead_is_one_of_now(clock, clocks, size_s):
    """/clock comes in steps: who stamps with a finer clock is always a little ahead of those who hear it."""
    clock.watch()
    clocks.shift_ns += round(size_s * NANO)
    clocks.steady += 0.02
    assert clock.to_steady(clocks.stamp(-0.015)) == pytest.approx(clocks.steady + 0.015, abs=1e-6)


def test_an_input_that_stopped_before_a_jump_grows_old_all_the_same(clock, clocks):
    clock.watch()
    frozen = clocks.stamp()
    clocks.shift_ns += 5 * NANO
    clocks.steady += 1.5
    assert clocks.steady - clock.to_steady(frozen) == pytest.approx(1.5, abs=1e-6)


def test_the_time_before_a_jump_is_forgotten(clock, clocks):
    clock.watch()
    clocks.shift_ns -= 5 * NANO
    clock.watch()
    clocks.steady += MEMORY_S + 0.1
    clock.watch()
    ahead = clocks.stamp(-3.0)
    assert clock.to_steady(ahead) == pytest.approx(clocks.steady + 3.0, abs=1e-6)


def test_a_stamp_of_a_host_ahead_of_us_is_in_the_future(clock, clocks):
    assert clock.to_steady(clocks.stamp(-0.2)) == pytest.approx(clocks.steady + 0.2, abs=1e-6)


def test_a_clock_that_is_heard_late_and_catches_up_has_not_jumped(clocks):
    """/clock comes by way of a thread that loads a model for a second."""
    heard = [clocks.ros_ns()]
    clock = StampClock(lambda: heard[0], lambda: clocks.steady, SIMULATED_STEP_S)
    for _ in range(60):
        clocks.steady += 0.02
        assert clock.watch() is None
    heard[0] = clocks.ros_ns()
    assert clock.watch() is None
    clocks.shift_ns += 5 * NANO
    heard[0] = clocks.ros_ns()
    assert clock.watch().size_s == pytest.approx(5.0, abs=1e-6)


def test_a_clock_that_was_paused_is_reported_when_it_goes_on(clocks):
    paused = clocks.ros_ns()
    clock = StampClock(lambda: paused, lambda: clocks.steady, SIMULATED_STEP_S)
    clock.watch()
    clocks.steady += 10.0
    assert clock.watch() is None
    paused += round(0.01 * NANO)
    assert clock.watch().size_s == pytest.approx(-9.99, abs=1e-6)


def test_a_pause_is_no_jump_when_it_is_announced(clock, clocks):
    clock.watch()
    clock.restart()
    clocks.shift_ns += 60 * NANO
    assert clock.watch() is None


def test_what_a_clock_does_to_catch_up_after_a_pause_is_no_jump(clock, clocks):
    clock.watch()
    clock.restart()
    assert clock.watch() is None
    clocks.steady += 0.1
    clocks.shift_ns += NANO
    assert clock.watch() is None
    clocks.steady += QUIET_S
    clocks.shift_ns += NANO
    assert clock.watch().size_s == pytest.approx(1.0, abs=1e-6)


def test_an_interrupted_reading_is_taken_again(clocks):
    readings = iter([0.0, 0.010, 0.010, 0.010])

    def steady():
        clocks.steady = next(readings, 0.010)
        return clocks.steady

    clock = StampClock(lambda: EPOCH_NS + 10_000_000, steady)
    assert math.isclose(clock.to_steady(EPOCH_NS), 0.0, abs_tol=1e-6)


def test_the_start_of_a_simulated_clock_is_no_jump(clocks):
    readings = iter([0, 0, 0])
    clock = StampClock(lambda: next(readings, 100 * NANO + round(clocks.steady * NANO)), lambda: clocks.steady)
    for _ in range(6):
        clocks.steady += 0.02
        assert clock.watch() is None
    assert clock.jumps == 0
    assert clock.to_steady(100 * NANO + round((clocks.steady - 0.1) * NANO)) == pytest.approx(
        clocks.steady - 0.1, abs=1e-6
    )


@given(
    st.floats(0.021, 10.0), st.booleans(), st.floats(0.0, 0.018), st.floats(0.02, 1.9), st.floats(0.0, 1.5),
    st.floats(0.0, 0.001),
)  # fmt: skip
def test_around_a_jump_of_any_size_a_stamp_keeps_its_age(size_s, forward, unread_s, since_s, age_s, ahead_s):
    """Whether stamped before or after it, by a host that is a little ahead; read every 20 ms. Only after a jump back
    one stamp can be two instants that are both past: then it may be taken for the younger one."""
    clocks = Clocks()
    clock = StampClock(clocks.ros_ns, lambda: clocks.steady)
    clock.watch()
    clocks.steady += unread_s
    jumped = clocks.steady
    clocks.shift_ns += round((size_s if forward else -size_s) * NANO)
    clocks.steady += 0.02 - unread_s
    assert clock.watch() is not None
    clocks.steady = jumped + since_s
    stamped = clocks.steady - age_s
    shift_ns = clocks.shift_ns if stamped >= jumped else EPOCH_NS
    read = clock.to_steady(shift_ns + round((stamped + ahead_s) * NANO))
    wanted = [stamped + ahead_s]
    if abs(stamped - jumped) < 0.04:  # the jump is known to a period only
        wanted += [stamped + ahead_s - size_s, stamped + ahead_s + size_s]
    elif not forward and stamped < jumped and jumped - 0.04 <= stamped + size_s <= clocks.steady + age_s / 20.0:
        wanted.append(stamped + ahead_s + size_s)
    assert min(abs(read - instant) for instant in wanted) < 1e-6
