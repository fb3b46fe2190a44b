"""A stream for tests: an executor whose every word reaches an ideal arm, and a policy of the test's own making."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample, Trajectory

PERIOD = 0.02

# Speed is measured by `vla bench`, not by tests: a busy machine is no fault.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def make_limits(n: int = 2, discrete: tuple[int, ...] = (), **arrays: float) -> Limits:
    values = {"lower": -3.0, "upper": 3.0, "velocity": 2.0, "acceleration": 10.0, "jerk": 150.0, **arrays}
    marks = np.array([j in discrete for j in range(n)])
    return Limits(
        tuple(f"j{j}" for j in range(n)), **{key: np.full(n, value) for key, value in values.items()}, discrete=marks
    )


@pytest.fixture(scope="session", name="make_limits")
def make_limits_fixture():
    """The function that makes limits for tests."""
    return make_limits


@pytest.fixture(scope="session", name="stream")
def stream_fixture():
    """The class of simulated streams."""
    return Stream


class Stream:
    """Simulated time from ``start`` on; the answers come ``latency_s`` after their requests.

    ``plan(times, n)``: the waypoints (H, n) for the steady times (H,) of the n-th answer (n counts from 0).
    """

    def __init__(
        self,
        plan: Callable[[np.ndarray, int], np.ndarray],
        limits: Limits | None = None,
        latency_s: float = 0.08,
        dt: float = 0.02,
        horizon: int = 50,
        start: float = 50.0,
        position: np.ndarray | None = None,
        **parameters,
    ):
        self.limits = limits or make_limits()
        self.executor = Executor(executor_settings(**parameters), self.limits, "e")
        self.plan, self.latency, self.dt, self.horizon = plan, latency_s, dt, horizon
        self.now = start
        self.position = plan(np.array([start]), 0)[0] if position is None else np.asarray(position, float)
        self.command: Trajectory | None = None
        self.in_command = True
        self.answering = True
        self.said: list[Trajectory | None] = []
        self.requests = []
        self.refusals = []
        self._due = []
        self._answers = 0

    def joints(self) -> JointSample:
        if self.command is None:
            return JointSample(self.now, self.position, np.zeros(len(self.limits)))
        return JointSample(self.now, *self.command.sample(self.now))

    def run(self, seconds: float, jitter: Callable[[], float] = lambda: 0.0) -> "Stream":
        for _ in range(round(seconds / PERIOD)):
            self.tick(PERIOD + jitter())
        return self

    def tick(self, passed: float = PERIOD):
        self.now += passed
        for due, request in list(self._due):
            if due <= self.now:
                self._due.remove((due, request))
                self.answer(request.request_id, request.stamp)
        tick = self.executor.tick(self.now, self.joints(), self.command, self.in_command)
        if tick.request is not None:
            self.requests.append(tick.request)
            if self.answering:
                self._due.append((self.now + self.latency, tick.request))
        self.said.append(tick.planned)
        if tick.planned is not None and (self.in_command or self.command is None):
            self.command = tick.planned
        return tick

    def answer(self, request_id: str, t0: float):
        positions = self.plan(t0 + self.dt * np.arange(self.horizon), self._answers)
        self._answers += 1
        chunk = ActionChunk(t0, self.dt, self.limits.joint_names, positions, request_id, self.now)
        self.refusals.append(self.executor.offer(self.now, chunk))
        return self.refusals[-1]

    def executed(self) -> tuple[np.ndarray, np.ndarray]:
        """Times (k,) and positions (k, n) of what was sent, ten times a period, as a controller interpolates it."""
        said = [t for t in self.said if t is not None]
        times, rows = [], []
        for one, following in zip(said, said[1:]):
            for t in np.linspace(one.start, following.start, 10, endpoint=False):
                times.append(t)
                rows.append(one.sample(t)[0])
        return np.array(times), np.array(rows)
