"""The demo's figures come from the messages alone; each of them must be able to go wrong."""

from dataclasses import replace

import numpy as np
import pytest

from vla_runtime.toolchain.demo import figures
from vla_runtime.toolchain.demo.summary import too_slow, what_was_done
from vla_runtime.toolchain.run_log import Motion, RunLog, Status

NAMES = ("a", "b")


def command(received, stamp=None, plan="p:1", at=0.0):
    positions = np.full((3, 2), at)
    return Motion(received, received - 0.001 if stamp is None else stamp, plan, NAMES, np.array([0, 0.02, 0.04]),
                  positions, np.zeros((3, 2)))  # fmt: skip


def chunk(stamp, plan="p:1", rows=50):
    return Motion(stamp + 0.05, stamp, plan, NAMES, np.arange(rows) * 0.02, np.zeros((rows, 2)), np.zeros((rows, 0)))


def test_stream_figures_of_a_perfect_stream_and_of_a_gap():
    stream = [command(i * 0.02) for i in range(501)]
    perfect = figures.stream_figures(stream)
    assert perfect["command_rate_hz"] == pytest.approx(50)
    assert perfect["period_error_p99_ms"] == pytest.approx(0, abs=1e-9)
    assert perfect["ticks_share"] == 1.0
    broken = figures.stream_figures(stream[:200] + stream[203:])
    assert broken["max_gap_ms"] == pytest.approx(80)
    assert broken["ticks_share"] == pytest.approx(497 / 500)


def test_elapsed_counts_messages_that_are_over_and_used_up_plans():
    good = [command(1.0 + i * 0.02) for i in range(10)]
    assert figures.elapsed_executed(good, [chunk(0.9)]) == 0
    assert figures.elapsed_executed([command(1.0, stamp=0.97)], [chunk(0.9)]) == 0  # late, but its end is to come
    assert figures.elapsed_executed([command(1.0, stamp=0.95)], [chunk(0.9)]) == 1
    assert figures.elapsed_executed([command(1.91)], [chunk(0.9)]) == 0  # the plan ended at 1.88: this is the brake
    assert figures.elapsed_executed([command(2.0)], [chunk(0.9)]) == 1


@pytest.mark.parametrize("fault", ["moving at the end", "nan", "times"])
def test_message_faults(fault):
    broken = command(1.0)
    if fault == "moving at the end":
        broken = replace(broken, velocities=np.full((3, 2), 1e-7))
    elif fault == "nan":
        broken = replace(broken, positions=np.full((3, 2), np.nan))
    else:
        broken = replace(broken, times=np.array([0, 0.02, 0.02]))
    assert figures.message_faults([command(0.98), broken]) == 1


def test_time_in_state_and_transitions():
    run = RunLog(duration=10.0, watchdog=[
        Status(1.0, "WARMUP", 0, {"cause": "start"}), Status(2.0, "NOMINAL", 0, {"cause": "first plan"}),
        Status(2.5, "NOMINAL", 0, {"cause": "first plan"}), Status(7.0, "FALLBACK", 1, {"cause": "policy silent"}),
    ])  # fmt: skip
    assert figures.time_in_state(run) == {"WARMUP": 1.0, "NOMINAL": 5.0, "FALLBACK": 3.0}
    assert figures.transitions(run) == [
        (1.0, "WARMUP", "start"), (2.0, "NOMINAL", "first plan"), (7.0, "FALLBACK", "policy silent"),
    ]  # fmt: skip


def test_inference_percentiles_add_the_stages():
    stages = {"vision": 10.0, "backbone": 5.0, "wait": 30.0, "observation_age": 40.0, "total": 99.0}
    run = RunLog(latency=[(0.1 * i, {**stages, "action": float(i)}) for i in range(101)])
    assert figures.inference_ms(run) == pytest.approx({"p50": 65.0, "p95": 110.0, "p99": 114.0, "max": 115.0})


def test_answers_that_are_too_slow_are_named_with_limit_and_remedy():
    def run(*totals: float) -> RunLog:
        stages = {"vision": 12.0, "wait": 5.0, "observation_age": 900.0}
        return RunLog(latency=[(0.1 * i, {**stages, "action": t - 17.0, "total": t}) for i, t in enumerate(totals)])

    def said_of(log: RunLog) -> str:
        return too_slow(figures.answers(log), figures.inference_ms(log))

    assert said_of(run(*[90.0] * 297, *[400.0] * 3)) == said_of(run(*[90.0] * 20, 400.0)) == ""
    assert said_of(run(*[90.0] * 296, *[400.0] * 4)) and said_of(run(*[90.0] * 20, 400.0, 400.0))
    assert said_of(RunLog()) == ""
    slow = run(*[240.0] * 60, *[260.0] * 40)
    assert figures.answers(slow) == {
        "count": 100, "late": 40, "deadline_ms": 250.0, "slowest_stage": "action", "slowest_p99_ms": 243.0
    }  # fmt: skip
    said = said_of(slow)
    for words in ("40 of 100 answers beyond answer_deadline_s (250 ms)", "inference p99 255 ms",
                  "'action' 243 ms", "uptime", "vla budget"):  # fmt: skip
        assert words in said


COASTS = [2.0, "COASTING", "request a:3 unanswered for 0.252 s (limit 0.25 s)"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "nothing: no deadline was missed"),
        ([COASTS, [2.2, "NOMINAL", ""], [2.9, "COASTING", "request a:4"], [3.1, "NOMINAL", ""]],
         "COASTING 2 times: request a:3 unanswered for 0.252 s (limit 0.25 s); the policy drove again after 0.2 s"),
        ([COASTS, [2.3, "FALLBACK", "request a:3 unanswered for 0.510 s"], [5.5, "NOMINAL", "recovered"]],
         "FALLBACK: request a:3 unanswered for 0.510 s; the policy drove again after 3.2 s"),
        ([[2.3, "FALLBACK", "no valid planned trajectory"]],
         "FALLBACK: no valid planned trajectory, until an operator drove"),
    ],
)  # fmt: skip
def test_the_summary_says_what_was_done_about_a_fault(changes, said):
    start = [[0.1, "WARMUP", ""], [1.0, "NOMINAL", "first good plan"]]
    after = [[7.0, "TELEOP", "an operator drives"], [9.0, "FALLBACK", "no valid teleop trajectory for 0.220 s"]]
    assert what_was_done([*start, *changes, *after]) == said
