"""The inference thread: latest request wins, one answer per observation, errors in the open."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.nodes.inference import InferenceWorker, Request, committed_prefix, noise_seed
from vla_runtime.policy.errors import UnreachableError
from vla_runtime.policy.observation import NotReady
from vla_runtime.policy.policy import Observation, PolicyOutput, load_policy
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

DT = 0.02


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load_policy(write_tiny_bundle(tmp_path_factory.mktemp("bundle")), allow_unproven=True)


class Slowed:
    """A real policy whose calls a test can hold, count and break."""

    def __init__(self, policy):
        self.policy = policy
        self.bundle = policy.bundle
        self.calls = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.faults = {}
        self.warm_up_fault = None

    def infer(self, observation, prefix=None, delay_steps=0, seed=None) -> PolicyOutput:
        self.calls.append((observation.t, seed))
        self.entered.release()
        assert self.gate.wait(5.0)
        fault = self.faults.get(len(self.calls))
        if fault is not None:
            raise fault
        return self.policy.infer(observation, prefix, delay_steps, seed)

    def warm_up(self):
        if self.warm_up_fault is not None:
            raise self.warm_up_fault
        self.policy.warm_up()


class Cameras:
    """Hands out one observation per frame; a new frame whenever a test says so."""

    def __init__(self, model):
        self.model = model
        self.fresh = True

    def observe(self, now):
        if not self.fresh:
            return NotReady("waiting", "no new frame yet from ['front']")
        self.fresh = False
        images = {c.name: np.zeros((c.height, c.width, 3), np.uint8) for c in self.model.cameras}
        return Observation(now, images, np.zeros(len(self.model.state.joints)), "")


@pytest.fixture
def bench(tiny):
    policy, answers, failures = Slowed(tiny), [], []
    cameras = Cameras(tiny.bundle.policy)
    worker = InferenceWorker(
        policy, cameras.observe, answers.append, failures.append, frame_wait_s=0.3, error_hold_s=0.01
    )  # fmt: skip
    worker.start()
    yield SimpleNamespace(policy=policy, cameras=cameras, worker=worker, answers=answers, failures=failures)
    policy.gate.set()
    worker.stop()


def request(n):
    now = time.monotonic()
    return Request(f"abc:{n}", now, np.zeros(0), np.zeros((0, 6)), now)


def wait(condition, timeout_s=5.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.002)
    pytest.fail("waited in vain")


def test_an_answer_carries_its_request_and_the_time_of_its_observation(bench):
    bench.worker.ask(request(1))
    wait(lambda: bench.answers)
    answer = bench.answers[0]
    assert answer.request.request_id == "abc:1"
    assert answer.t0 == bench.policy.calls[0][0]
    assert answer.actions.shape == (50, 6)
    assert {"wait", "observation_age", "preprocess", "vision", "backbone", "action", "total"} <= set(answer.stage_ms)


def test_the_latest_request_wins(bench):
    bench.policy.gate.clear()
    bench.worker.ask(request(1))
    assert bench.policy.entered.acquire(timeout=5.0)
    for n in (2, 3, 4):
        bench.worker.ask(request(n))
    bench.cameras.fresh = True
    bench.policy.gate.set()
    wait(lambda: len(bench.answers) == 2)
    assert [a.request.request_id for a in bench.answers] == ["abc:1", "abc:4"]
    assert bench.worker.counters["superseded"] == 2


def test_a_frame_is_used_once_and_the_wait_for_the_next_is_counted(bench):
    bench.worker.ask(request(1))
    wait(lambda: bench.answers)
    bench.worker.ask(request(2))
    time.sleep(0.05)
    assert len(bench.policy.calls) == 1
    bench.cameras.fresh = True
    wait(lambda: len(bench.answers) == 2)
    assert bench.worker.counters["waited_for_frame"] == 1
    assert bench.worker.not_ready is None


def test_a_frozen_camera_leaves_the_request_unanswered(bench):
    bench.worker.ask(request(1))
    wait(lambda: bench.answers)
    bench.worker.ask(request(2))
    wait(lambda: bench.worker.counters["no_observation.waiting"] == 1)
    assert len(bench.policy.calls) == 1
    assert bench.worker.not_ready.kind == "waiting"
    bench.cameras.fresh = True
    bench.worker.ask(request(3))
    wait(lambda: len(bench.answers) == 2)
    assert bench.worker.not_ready is None


def test_an_engine_that_throws_on_its_third_call_is_reported_and_recovers(bench):
    bench.policy.faults[3] = RuntimeError("CUDA error 700")
    for n in (1, 2, 3, 4):
        bench.cameras.fresh = True
        bench.worker.ask(request(n))
        wait(lambda n=n: len(bench.answers) + len(bench.failures) == n)
        wait(lambda: bench.worker.busy_since is None)
    assert [a.request.request_id for a in bench.answers] == ["abc:1", "abc:2", "abc:4"]
    assert "CUDA error 700" in bench.failures[0]
    assert "Traceback" in bench.failures[0]
    assert bench.worker.error == ""
    assert not bench.worker.broken


def test_a_plan_out_of_reach_is_no_fault_of_the_policy(bench):
    """However many there are: the request stays unanswered, and the next one is served."""
    bench.policy.faults = {n: UnreachableError("row 3 of the plan: 'tool' cannot reach") for n in range(1, 6)}
    for n in range(1, 7):
        bench.cameras.fresh = True
        bench.worker.ask(request(n))
        wait(lambda n=n: len(bench.failures) + len(bench.answers) == n)
        wait(lambda: bench.worker.busy_since is None)
    assert [a.request.request_id for a in bench.answers] == ["abc:6"]
    assert bench.worker.counters["unreachable_plans"] == 5
    assert not bench.worker.broken and bench.worker.error == ""


def test_the_error_is_shown_until_the_engine_has_proved_itself(bench):
    bench.policy.faults[1] = RuntimeError("out of memory")
    bench.policy.warm_up_fault = RuntimeError("still out of memory")
    bench.worker.ask(request(1))
    wait(lambda: bench.worker.broken)
    assert bench.worker.error == "RuntimeError: out of memory"
    assert len(bench.failures) == 2


def test_a_policy_that_fails_again_and_again_is_given_up(bench):
    bench.policy.faults = {n: ValueError("bad tensor") for n in range(1, 10)}
    for n in (1, 2, 3):
        bench.cameras.fresh = True
        bench.worker.ask(request(n))
        wait(lambda n=n: len(bench.failures) == n)
        wait(lambda: bench.worker.busy_since is None)
    assert bench.worker.broken
    assert bench.worker.counters["answers"] == 0


def test_a_hanging_inference_is_seen_from_outside(bench):
    bench.policy.gate.clear()
    bench.worker.ask(request(1))
    wait(lambda: bench.policy.calls)
    assert bench.worker.busy_since is not None
    assert not bench.worker.stop(timeout_s=0.05)


def test_the_noise_is_a_function_of_the_request(bench):
    for n in (1, 1, 2):
        bench.cameras.fresh = True
        bench.worker.ask(request(n))
        wait(lambda: bench.worker.busy_since is None and not bench.cameras.fresh)
        time.sleep(0.01)
    wait(lambda: len(bench.policy.calls) == 3)
    seeds = [seed for _, seed in bench.policy.calls]
    assert seeds[0] == seeds[1] != seeds[2]
    assert noise_seed("abc:1") == seeds[0]


@given(
    st.floats(0.0, 0.3),
    st.integers(0, 10),
    st.integers(0, 15),
    st.integers(1, 14),
    st.floats(-2.0, 2.0),
)
@settings(deadline=None)
def test_a_prefix_is_what_is_executed_from_the_observation_on(age, before, after, most, velocity):
    """On a straight path, rows of the prefix lie on it, whatever the age of the observation is."""
    at = 100.0
    times = DT * np.arange(-before, after + 1)
    path = 0.3 + velocity * times
    prefix, count = committed_prefix(Request("x:1", at, times, path[:, None], at), at - age, DT, most)
    assert count == min(int(np.floor((age + times[-1]) / DT + 1e-6)) + 1, most)
    if len(times) > 1:
        assert np.allclose(prefix.positions[:, 0], 0.3 + velocity * (DT * np.arange(count) - age), atol=1e-8)
    else:
        assert np.allclose(prefix.positions[:, 0], 0.3)


def test_a_prefix_follows_what_was_executed_before_the_request():
    times = DT * np.arange(-3, 2)
    path = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    prefix, count = committed_prefix(Request("x:1", 5.0, times, path[:, None], 5.0), 5.0 - 2 * DT, DT, 12)
    assert count == 4
    assert prefix.positions[:, 0].tolist() == pytest.approx([0.1, 0.3, 0.6, 1.0])


def test_no_prefix_where_none_is_committed():
    none = Request("x:1", 1.0, np.zeros(0), np.zeros((0, 6)), 1.0)
    assert committed_prefix(none, 0.98, DT, 12) == (None, 0)
    some = Request("x:1", 1.0, DT * np.arange(3), np.zeros((3, 6)), 1.0)
    assert committed_prefix(some, 0.98, DT, 0) == (None, 0)
