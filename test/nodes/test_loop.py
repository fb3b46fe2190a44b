"""The control loop on a clock that tests move, and one run on the real one."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.nodes.loop import ControlLoop, LoopStatistics, next_deadline

PERIOD = 0.02


class Stage:
    """A clock that only sleeping and ticking move; the loop ends after ``total`` ticks."""

    def __init__(self, durations, oversleep=()):
        self.now = 10.003
        self.durations = list(durations)
        self.oversleep = list(oversleep)
        self.started = []
        self.errors = []
        self.loop = ControlLoop(
            self.tick, PERIOD, name="t", phase_s=0.0, clock=lambda: self.now, sleep=self.sleep,
            on_error=self.errors.append,
        )  # fmt: skip

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds + (self.oversleep.pop(0) if self.oversleep else 0.0)

    def tick(self, now):
        assert now == self.now
        self.started.append(now)
        duration = self.durations.pop(0)
        if not self.durations:
            self.loop._stopping.set()
        if isinstance(duration, Exception):
            raise duration
        self.now += duration

    def run(self):
        self.loop._run()
        return self.started


def test_ticks_fall_on_multiples_of_the_period():
    started = Stage([0.005] * 50).run()
    assert started == pytest.approx([10.02 + i * PERIOD for i in range(50)])


def test_oversleeping_does_not_drift():
    started = Stage([0.001] * 10, oversleep=[0.003] * 9).run()
    assert started == pytest.approx([10.023 + i * PERIOD for i in range(9)] + [10.02 + 9 * PERIOD])


def test_ticks_stay_on_the_multiples_on_a_host_that_is_up_for_long():
    # Added up, each tick would be 4.5e-10 s early from 2**22 s (seven weeks) on: 2 ms a day, and out of the grid.
    stage = Stage([0.001] * 20_000)
    stage.now = 2.0**22 + 0.003
    first, *_, last = stage.run()
    assert last == pytest.approx(round(last / PERIOD) * PERIOD, rel=0.0, abs=2e-9)
    assert last - first == pytest.approx(19_999 * PERIOD, rel=0.0, abs=4e-9)


def test_a_late_tick_runs_at_once():
    stage = Stage([0.001, 0.030, 0.001, 0.001])
    assert stage.run() == pytest.approx([10.02, 10.04, 10.07, 10.08])
    assert stage.loop.statistics.missed == 0


def test_missed_ticks_are_skipped_and_counted():
    stage = Stage([0.001, 0.095, 0.001, 0.001, 0.001])
    # The second tick ends at 10.135: the ticks of 10.06, 10.08 and 10.10 are lost, that of 10.12 runs late.
    assert stage.run() == pytest.approx([10.02, 10.04, 10.135, 10.14, 10.16])
    assert stage.loop.statistics.missed == 3


@given(st.lists(st.floats(0.0, 0.2), min_size=2, max_size=60))
@settings(deadline=None)
def test_never_a_burst_and_every_tick_is_accounted_for(durations):
    stage = Stage(durations)
    started = stage.run()
    slots = [int((t - 1e-9 - 10.0) / PERIOD) for t in started]
    for i in range(2, len(started)):
        assert started[i] - started[i - 2] > PERIOD * 0.999, "three ticks within one period"
    assert slots[-1] - slots[0] + 1 >= len(started)
    assert len(started) + stage.loop.statistics.missed <= (started[-1] - 10.02) / PERIOD + 1 + 1e-6


def test_an_exception_is_reported_and_the_loop_goes_on():
    stage = Stage([0.001, ValueError("bad plan"), 0.001])
    assert stage.run() == pytest.approx([10.02, 10.04, 10.06])
    assert stage.loop.statistics.failed == 1
    assert "ValueError: bad plan" in stage.errors[0]
    assert "Traceback" in stage.errors[0]


class LeadingStage(Stage):
    """Works 4 ms before each deadline, and speaks."""

    def __init__(self, durations, **options):
        super().__init__(durations, **options)
        self.spoke = []
        self.loop._lead_s = 0.004

    def tick(self, now):
        self.started.append(self.now)
        self.meant = now
        self.now += self.durations.pop(0)
        if not self.durations:
            self.loop._stopping.set()
        return self.speak

    def speak(self):
        assert self.now >= self.meant
        self.spoke.append(self.now)


def test_with_a_lead_the_work_is_done_before_the_deadline_and_spoken_at_it():
    stage = LeadingStage([0.001, 0.003, 0.0, 0.002])
    stage.run()
    assert stage.started == pytest.approx([10.016 + i * PERIOD for i in range(4)])
    assert stage.spoke == pytest.approx([10.02 + i * PERIOD for i in range(4)])
    assert stage.loop.statistics.figures().tick_max_ms == pytest.approx(3.0)
    assert stage.loop.statistics.figures().period_error_p99_ms == pytest.approx(0.0, abs=1e-6)


def test_with_a_lead_work_that_takes_too_long_is_spoken_at_once():
    stage = LeadingStage([0.001, 0.009, 0.001])
    stage.run()
    assert stage.spoke == pytest.approx([10.02, 10.045, 10.06])


@given(st.lists(st.floats(0.0, 0.2), min_size=2, max_size=60), st.lists(st.floats(0.0, 0.01), max_size=60))
@settings(deadline=None)
def test_with_a_lead_nothing_is_spoken_before_the_instant_it_is_for(durations, oversleep):
    stage = LeadingStage(durations, oversleep=oversleep)
    stage.run()
    assert len(stage.spoke) == len(durations)
    assert all(b >= a for a, b in zip(stage.spoke, stage.spoke[1:]))


def test_figures():
    statistics = LoopStatistics(PERIOD, window=100)
    for i in range(250):
        statistics.add(i * PERIOD, 0.002)
    statistics.add(250 * PERIOD + 0.010, 0.004)
    figures = statistics.figures()
    assert figures.ticks == 251
    assert figures.max_gap_ms == pytest.approx(30.0)
    assert figures.tick_max_ms == pytest.approx(4.0)
    assert figures.rate_hz == pytest.approx(50.0, rel=0.01)
    assert LoopStatistics(PERIOD).figures().rate_hz == 0.0


@given(st.floats(0.0, 1e6), st.floats(0.0, 0.019))
def test_the_next_deadline_is_on_the_grid(now, phase):
    deadline = next_deadline(now, PERIOD, phase)
    assert now - 1e-6 <= deadline <= now + PERIOD + 1e-6
    steps = (deadline - phase) / PERIOD
    assert abs(steps - round(steps)) < 1e-3


def test_a_real_thread_starts_and_stops():
    ticked = threading.Event()
    calls = []

    def tick(now):
        calls.append(now)
        ticked.set()

    loop = ControlLoop(tick, 0.005, name="real", priority=0, on_error=pytest.fail)
    loop.start()
    assert ticked.wait(5.0)
    loop.stop()
    count = len(calls)
    assert "realtime_priority" in loop.realtime_refusal
    threading.Event().wait(0.03)
    assert len(calls) == count
