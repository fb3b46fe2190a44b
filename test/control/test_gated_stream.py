"""What reaches the controller: executor and watchdog together, each at its own phase, as the nodes run them."""

import numpy as np
import pytest

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import GRID_PHASE, Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog import WATCHDOG_PHASE, Watchdog
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
from vla_runtime.control.watchdog_states import State
from vla_runtime.sim.command_checker import CommandChecker

PERIOD = 0.02


def commanded(stream, seconds: float) -> tuple[np.ndarray, Watchdog]:
    """Run a stream through a watchdog: (positions (k, n) ten times a period, as a controller draws them; watchdog)."""
    watchdog = Watchdog(WATCHDOG_TABLE.load({}), stream.limits)
    watchdog.activate(stream.now)
    answer = stream.answer

    def heard(request_id: str, t0: float):
        watchdog.saw_answer(stream.now, request_id, t0)
        return answer(request_id, t0)

    stream.answer = heard
    commands = []
    for _ in range(round(seconds / PERIOD)):
        tick = stream.tick()
        if tick.request is not None:
            watchdog.saw_request(stream.now, tick.request.request_id)
        watchdog.saw_heartbeat(stream.now, "ready")
        command = watchdog.tick(stream.now + WATCHDOG_PHASE * PERIOD, stream.joints(), tick.planned)
        if command.trajectory is not None:
            commands.append(command.trajectory)
    rows = [
        one.sample(t)[0]
        for one, following in zip(commands, commands[1:])
        for t in np.linspace(one.start, following.start, 10, endpoint=False)
    ]
    return np.array(rows), watchdog


@pytest.mark.parametrize("blend", ["crossfade", "rtc", "ensemble"])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("slope", [0.05, 0.2, 1.0])
def test_an_offset_at_every_change_leaves_no_saw_tooth_at_the_controller(stream, make_limits, blend, uneven, slope):
    """Plans 0.05 rad apart that rise (the second joint falls): what is commanded rises, to the last bit."""

    def rising(times, n):
        wave = 0.9 * slope * np.cos(times) if uneven else 0.0
        rise = slope * (times - 50.0) - wave + 0.05 * (-1) ** n
        return np.column_stack((rise, -rise))

    s = stream(rising, blend=blend, horizon=60, limits=make_limits(lower=-30.0, upper=30.0))
    rows, watchdog = commanded(s, 4.0)
    assert s.executor.snapshot()["accepted"] >= 15
    assert watchdog.state is State.NOMINAL and not watchdog.refused
    steps = np.diff(rows[60:], axis=0) * (1.0, -1.0)
    assert steps.min() >= -1e-12


def test_the_watchdog_commands_what_was_planned_while_plans_change(stream):
    """No seam of its own: at the instant of each command it is where the executor's newest words lead."""
    s = stream(lambda t, n: np.column_stack((np.sin(t), np.cos(t))) + 0.02 * (-1) ** n, horizon=60)
    rows, _ = commanded(s, 4.0)
    said = [planned for planned in s.said if planned is not None]
    apart = [
        np.abs(rows[10 * k] - planned.sample(planned.start + WATCHDOG_PHASE * PERIOD)[0]).max()
        for k, planned in enumerate(said[: len(rows) // 10])
    ]
    assert max(apart) < 1e-9


@pytest.mark.parametrize("period_s", [0.004, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("jitter", [0.0, 0.4])
def test_every_control_period_of_the_range_keeps_the_form_and_the_plan(stream, period_s, jitter):
    """Also where the next point of the grid is nearer than points may be: it is left out, never sent too close.

    ``jitter``: by how much of the period ticks of the executor come late, at most.
    """
    rng = np.random.default_rng(1)

    def plan(times, _n):
        return 0.5 * np.column_stack((np.sin(2.0 * times), np.cos(2.0 * times)))

    s = stream(plan, horizon=60, period_s=period_s, k=max(1, round(0.2 / period_s)), latency_s=0.08)
    s.executor = Executor(s.executor.settings, s.limits, "e", due=s.now)
    patient = {"stream_deadline_s": max(0.04, 2.0 * period_s), "window_s": max(0.2, 4.0 * period_s)}
    watchdog = Watchdog(WATCHDOG_TABLE.load({"period_s": period_s, **patient}), s.limits)
    watchdog.activate(s.now)
    checker, commands, begin = CommandChecker(s.limits), [], s.now
    answer = s.answer
    s.answer = lambda name, t0: (watchdog.saw_answer(s.now, name, t0), answer(name, t0))[1]
    for k in range(1, round(4.0 / period_s)):
        tick = s.tick(begin + (k + jitter * rng.random()) * period_s - s.now)
        if tick.request is not None:
            watchdog.saw_request(s.now, tick.request.request_id)
        watchdog.saw_heartbeat(s.now, "ready")
        at = begin + (k + WATCHDOG_PHASE) * period_s
        command = watchdog.tick(at, s.joints(), tick.planned).trajectory
        checker.check(at, command, due=bool(commands))
        if command is not None:
            commands.append(command)
            s.command = command
    assert checker.violations == [] and not watchdog.refused
    assert watchdog.state is State.NOMINAL
    settled = [c for c in commands if c.start > begin + 3.0]
    assert len(settled) == pytest.approx(1.0 / period_s, abs=2)
    apart = [np.abs(c.sample(t)[0] - plan(np.array([t]), 0)[0]).max() for c in settled
             for t in c.start + period_s * np.linspace(0.0, 1.0, 5)]  # fmt: skip
    assert max(apart) < max(3e-4, 0.5 * period_s**2)  # the grid's cubics cut the corners of a long period


def test_a_first_tick_that_is_late_does_not_set_the_grid(make_limits):
    """Ticks are due at multiples of the period; a grid that were 9 ms off would have its points right after them."""
    executor = Executor(executor_settings(), make_limits(), "e", due=0.0)
    late = executor.tick(100.009, JointSample(100.009, np.zeros(2), np.zeros(2)), None, False)
    rows = np.zeros((50, 2)) + 0.01 * np.arange(50)[:, None]
    chunk = ActionChunk(100.009, PERIOD, executor.limits.joint_names, rows, late.request.request_id, 100.03)
    assert executor.offer(100.03, chunk) is None
    planned = executor.tick(100.04, JointSample(100.04, np.zeros(2), np.zeros(2)), None, False).planned
    assert planned.times[1] == pytest.approx(GRID_PHASE * PERIOD, abs=1e-9)
