"""A simulated clock that is too coarse, or does not run with the world, is named; one that is neither is not."""

import pytest

from vla_runtime.nodes.clock import NANO, SIMULATED_STEP_S, StampClock
from vla_runtime.nodes.clock_pace import NEVER, STOPPED, STOPPED_S, ClockPace


def fault(rate: float, clock_hz: float, seconds: float = 12.0, late_s: float = 0.0, jump_at: float = 1e9) -> str:
    """What is said of a clock that comes `clock_hz` times a second, read by a control loop at 50 Hz.

    late_s: how late every tenth of its messages is heard; jump_at: when it jumps by 7 s (steady s).
    """
    now = 0.0

    def ros_ns() -> int:
        tick = int(now * clock_hz + 1e-9)
        if tick % 10 == 0 and now - tick / clock_hz < late_s:
            tick -= 1
        jumped = 7.0 if tick / clock_hz >= jump_at else 0.0
        return round((100.0 + rate * tick / clock_hz + jumped) * NANO)

    pace = ClockPace()
    clock = StampClock(ros_ns, lambda: now, SIMULATED_STEP_S, pace)
    said = set()
    for k in range(round(seconds * 50)):
        now = 0.02 * k
        clock.watch()
        for _ in range(3):
            now += 0.001  # several readings in one tick
            clock.to_stamp(now)
        said.add(pace.fault)
    return max(said, key=len)


@pytest.mark.parametrize("clock_hz", [50.0, 62.0, 100.0, 1000.0])
@pytest.mark.parametrize("rate", [0.96, 1.0, 1.04])
def test_a_clock_that_runs_with_the_world_is_not_mentioned(rate, clock_hz):
    assert fault(rate, clock_hz) == ""


@pytest.mark.parametrize("rate", [0.5, 0.9, 1.1, 3.0])
def test_another_rate_is_named(rate):
    assert fault(rate, 200.0).startswith(f"/clock runs at {rate:.2f} of real time")


@pytest.mark.parametrize("clock_hz", [5.0, 10.0, 20.0])
def test_a_coarse_clock_is_named(clock_hz):
    assert fault(1.0, clock_hz).startswith("/clock stands still for")


def test_a_message_that_is_heard_late_is_no_coarse_clock():
    assert fault(1.0, 100.0, late_s=0.01) == ""


def test_a_jump_is_not_taken_for_a_rate():
    assert fault(1.0, 200.0, jump_at=7.0) == ""


def test_a_window_later_all_is_well_again():
    pace = ClockPace()
    for k in range(3000):  # 10 s at 0.5, then 20 s at 1.0
        t = 0.01 * k
        pace.saw(round((100.0 + (0.5 * t if t < 10.0 else t - 5.0)) * NANO), t)
        if k == 999:
            assert pace.fault
    assert pace.fault == ""


@pytest.mark.parametrize(("stands_at_ns", "said"), [(0, NEVER), (100 * NANO, STOPPED)], ids=["never", "paused"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_does_not_go_is_named_until_it_goes(stands_at_ns, said, restarted):
    """It was told as "no joint state", from an arm that sent a hundred a second."""
    pace, faults = ClockPace(), []
    for k in range(1200):
        t = 0.02 * k
        if restarted and k == 590:
            pace.restart()  # by a transition of the node
        pace.saw(stands_at_ns if t < 12.0 else round((88.0 + t) * NANO), t)
        faults.append(pace.fault)
    assert set(faults) == {"", said}
    assert faults[round(STOPPED_S * 50) - 5] == "" and faults[round(STOPPED_S * 50) + 5] == said
    assert set(faults[603:]) == {""}  # and the standing is held against no window
