"""A trace replayed: the same answers, bit for bit; and what happens when it is not whole, or not the same."""

import json

import numpy as np
import pytest

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.fallback import installed_planners
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.errors import UserError
from vla_runtime.nodes.trace import EXECUTOR_CALLS, WATCHDOG_CALLS, Traced, executor_note, pieces, watchdog_note
from vla_runtime.toolchain.replay.exact import replay, sort_records

NAMES = ("a", "b", "grip")
LIMITS = Limits.from_dict(
    {
        name: {
            "lower": -2.0,
            "upper": 2.0,
            "velocity": 2.0,
            "acceleration": 10.0,
            "jerk": 200.0,
            "discrete": name == "grip",
        }
        for name in NAMES
    }
)


def a_run(seed: int, seconds: float = 4.0) -> list[tuple[str, dict]]:
    """Records of an executor and a watchdog that drive an arm, with late answers, a hold, a silence and a new K."""
    rng = np.random.default_rng(seed)
    records: list[tuple[str, dict]] = []
    start = {"settings": executor_settings(), "limits": LIMITS, "epoch": "e"}
    executor = Traced(
        Executor(**start),
        EXECUTOR_CALLS,
        lambda note: records.append(("/executor", json.loads(note.text()))),
        executor_note,
    )
    executor.begin(**start)
    begin = {"settings": watchdog_settings(), "limits": LIMITS, "poses": {"home": dict.fromkeys(NAMES, 0.0)}}
    watchdog = Traced(
        Watchdog(**begin, planners=installed_planners()),
        WATCHDOG_CALLS,
        lambda note: records.append(("/watchdog", json.loads(note.text()))),
        watchdog_note,
    )
    watchdog.begin(**begin)
    now, command, in_command, answers = 100.0 + rng.random(), None, False, []
    watchdog.activate(now)
    position = np.zeros(3)
    for i in range(int(seconds / 0.02)):
        now += 0.02
        joints = JointSample(now - 0.004, position, np.zeros(3))
        for answer in [a for a in answers if a.received <= now]:
            answers.remove(answer)
            executor.offer(now, answer)
            watchdog.saw_answer(now, answer.request_id, answer.t0)
        watchdog.saw_heartbeat(now, "ready")
        if i == 60:
            executor.retune(executor_settings(k=20))
        tick = executor.tick(now, joints, command, in_command)
        if tick.request is not None:
            watchdog.saw_request(now, tick.request.request_id)
            late = 1.0 if i in range(80, 95) else float(rng.uniform(0.03, 0.12))
            goal = position + rng.uniform(-0.2, 0.2, 3)
            path = position + np.linspace(0, 1, 50)[:, None] * (goal - position)
            answers.append(ActionChunk(now - 0.01, 0.02, NAMES, path, tick.request.request_id, now + late))
        if i == 150:
            watchdog.hold(now)
        if i == 170:
            watchdog.release(now)
        said = watchdog.tick(now + 0.01, joints, tick.planned)
        if in_command and said.in_command != "policy":
            executor.flush("taken")
        command, in_command = said.trajectory or command, said.in_command == "policy"
        if command is not None:
            position = command.sample(now)[0]
    watchdog.stop(now + 0.02, "end")
    return records


@pytest.fixture(scope="module")
def records():
    return a_run(0)


def test_every_decision_comes_out_equal(records):
    traces = sort_records(records)
    outcomes = [replay(session) for session in traces.sessions]
    assert [outcome.node for outcome in outcomes] == ["executor", "watchdog"]
    assert all(outcome.same for outcome in outcomes), [outcome.difference for outcome in outcomes]
    assert all(outcome.ticks == 200 for outcome in outcomes)
    changes = [note for _, note in outcomes[1].notes]
    assert any("NOMINAL" in change for change in changes)
    assert any("HOLD" in change for change in changes)


def test_twenty_times_the_same(records):
    for session in sort_records(records).sessions:
        for _ in range(20):
            assert replay(session).same


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_runs_too(seed):
    assert all(replay(session).same for session in sort_records(a_run(seed, 2.0)).sessions)


def changed(records: list, node: str, call: int, change) -> list:
    """The records with one of them changed: ``change(record)``."""
    copy = json.loads(json.dumps(records))
    (record,) = [r for topic, r in copy if topic == f"/{node}" and r["n"] == call]
    change(record)
    return [tuple(item) for item in copy]


def test_one_bit_of_an_argument_is_noticed(records):
    ticks = [r["n"] for topic, r in records if topic == "/executor" and r["call"] == "tick"]

    def nudge(record):
        record["args"][0] = float(np.nextafter(record["args"][0], 1e9))

    (executor, _) = sort_records(changed(records, "executor", ticks[120], nudge)).sessions
    outcome = replay(executor)
    assert not outcome.same
    assert f"call {ticks[120]} (tick" in outcome.difference


def test_another_result_is_noticed(records):
    def other(record):
        record["result"] = "0" * 16

    (_, watchdog) = sort_records(changed(records, "watchdog", 40, other)).sessions
    assert "0000000000000000" in replay(watchdog).difference


def test_a_lost_record_ends_the_session_there(records):
    with_a_gap = [item for item in records if not (item[0] == "/watchdog" and item[1]["n"] == 100)]
    traces = sort_records(with_a_gap)
    assert traces.sessions[1].lost
    assert len(traces.sessions[1].calls) == 99
    assert traces.headless["watchdog"] > 100
    assert replay(traces.sessions[1]).same


def test_neighbours_that_changed_places_are_put_right(records):
    shuffled = list(records)
    for i in range(0, len(shuffled) - 1, 7):
        shuffled[i], shuffled[i + 1] = shuffled[i + 1], shuffled[i]
    traces = sort_records(shuffled)
    assert traces.headless == {}
    counts = {s.node: len(s.calls) for s in sort_records(records).sessions}
    assert {s.node: len(s.calls) for s in traces.sessions} == counts


def test_records_before_a_start_are_counted_not_replayed(records):
    traces = sort_records(records[50:])
    assert traces.sessions == []
    assert sum(traces.headless.values()) == len(records) - 50


def test_a_second_start_is_a_second_session(records):
    traces = sort_records([*records, *a_run(4, 1.0)])
    assert [session.node for session in traces.sessions] == ["executor", "watchdog"] * 2
    assert all(replay(session).same for session in traces.sessions)


def test_a_trace_cannot_make_other_objects():
    start = {
        "format": 1,
        "n": 0,
        "call": "start",
        "with": {"~": "map", "items": [["settings", {"~": "Popen", "args": "ls"}]]},
    }
    (session,) = sort_records([("/executor", start)]).sessions
    with pytest.raises(ValueError, match="unknown type 'Popen'"):
        replay(session)


def test_another_format_is_refused_by_number():
    with pytest.raises(UserError, match="format 99"):
        sort_records([("/executor", {"format": 99, "n": 0, "call": "start", "with": {}})])


@pytest.mark.parametrize("size", [1, 2_000, 16_000])
def test_pieces_have_every_line_in_order_and_one_size(size):
    texts = [json.dumps({"n": k, "args": "x" * (37 * k % 1500)}) for k in range(120)]
    found = list(pieces(iter(texts), size))
    assert [json.loads(line) for piece in found for line in piece.splitlines()] == [json.loads(text) for text in texts]
    assert all(len(piece) == size or piece in texts for piece in found)
    longest = max(map(len, texts)) + 1
    assert all(len(piece.rstrip(" ")) > size - longest for piece in found[:-1])


def test_no_lines_make_no_message():
    assert list(pieces([], 32_000)) == []
