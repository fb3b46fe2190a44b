"""Promises 1 to 3 over generated histories: random delays, losses, nonsense, jumps, ticks that come late."""

import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample, Trajectory

PERIOD = 0.02
NAMES = ("a", "b", "c", "gripper")
TIGHT = 1e-6


def make_limits(seed: int) -> Limits:
    rng = np.random.default_rng(seed)
    acceleration = rng.uniform(2.0, 20.0, 4)
    lower = rng.uniform(-2.0, -0.5, 4)
    return Limits(
        NAMES,
        lower,
        lower + rng.uniform(1.0, 4.0, 4),
        rng.uniform(0.5, 3.0, 4),
        acceleration,
        acceleration * rng.uniform(4.0, 30.0, 4),
        np.array([False, False, False, True]),
    )


def interpolated(trajectory: Trajectory):
    """What the cubics between the points are: position, velocity (many times), acceleration (at both ends), jerk."""
    h = np.diff(trajectory.times)[:, None]
    p0, p1 = trajectory.positions[:-1], trajectory.positions[1:]
    v0, v1 = trajectory.velocities[:-1], trajectory.velocities[1:]
    jerk = (6.0 * (v0 + v1) - 12.0 * (p1 - p0) / h) / h**2
    a = (v1 - v0) / h - 0.5 * jerk * h
    s = np.linspace(0.0, 1.0, 6)[:, None, None] * h
    positions = p0 + s * (v0 + s * (0.5 * a + s / 6.0 * jerk))
    return positions, v0 + s * (a + 0.5 * s * jerk), np.stack((a, a + jerk * h)), jerk


class Histories(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**31),
        blend=st.sampled_from(["cut", "crossfade", "rtc", "ensemble"]),
        dt=st.sampled_from([0.02, 0.05, 0.1, 1.0 / 30.0, 0.013]),
        k=st.integers(1, 30),
    )
    def start(self, seed, blend, dt, k):
        self.rng = np.random.default_rng(seed)
        self.limits = make_limits(seed)
        self.executor = Executor(executor_settings(blend=blend, k=k, max_jump=0.0, max_speed_ratio=0.0), self.limits)
        self.dt = dt
        self.now = 100.0 + self.rng.uniform(0.0, 1.0)
        self.position = self.rng.uniform(self.limits.lower, self.limits.upper)
        self.requests = []
        self.command = None  # what the arm follows; everything planned passes while in command
        self.in_command = True
        self.judged = True
        self.said = None
        self.accepted = {}
        self.joints_stopped = False
        self.centre = self.position.copy()

    def joints(self):
        if self.command is None:
            return JointSample(self.now, self.position, np.zeros(4))
        position, velocity = self.command.sample(self.now)
        return JointSample(self.now - (1.0 if self.joints_stopped else 0.0), position, velocity)

    def chunk(self, request_id, age, horizon=40, wildness=0.3):
        t0 = self.now - age
        times = t0 + self.dt * np.arange(horizon)
        span = self.limits.upper - self.limits.lower
        middle = 0.5 * (self.limits.upper + self.limits.lower)
        phase = self.rng.uniform(0.0, 6.3, 4)
        shape = np.sin(self.rng.uniform(0.2, 1.5, 4) * times[:, None] + phase)
        positions = middle + 0.5 * span * self.rng.uniform(0.0, 1.0, 4) * shape
        positions += self.rng.normal(0.0, wildness * self.rng.uniform(0.0, 1.0) * span / 20.0, positions.shape)
        positions = np.clip(positions, self.limits.lower, self.limits.upper)
        return ActionChunk(t0, self.dt, NAMES, positions, request_id, self.now)

    @rule(ticks=st.integers(1, 30), jitter=st.sampled_from([0.0, 0.0005, 0.003, 0.009]))
    def run(self, ticks, jitter):
        for _ in range(ticks):
            self.tick(PERIOD + self.rng.uniform(-jitter, jitter))

    @rule(missed=st.integers(1, 12))
    def stall(self, missed):
        self.tick(PERIOD * missed + self.rng.uniform(0.0, PERIOD))

    @rule(seconds=st.floats(0.0005, 0.07))
    def wait(self, seconds):
        """Time passes before something arrives; with more than a period, a tick was missed."""
        self.now += seconds

    def tick(self, passed):
        self.now += passed
        before = self.command
        plans = self.judged or self.in_command or self.rng.random() < 0.2
        tick = self.executor.tick(self.now, self.joints(), self.command, self.in_command, plans)
        if tick.request is not None:
            self.requests.append(tick.request)
            self.check_request(tick.request)
        self.said = None
        if tick.planned is None:
            return
        self.check(tick.planned, before)
        self.said = tick.planned
        if self.in_command or before is None:
            self.command = tick.planned

    def check(self, planned: Trajectory, before: Trajectory | None):
        limits = self.limits
        assert planned.fault() is None
        assert planned.start == self.now
        # It begins where the arm is being driven.
        p, v = before.sample(self.now) if before is not None else (self.position, np.zeros(4))
        assert np.abs(planned.positions[0] - p).max() < 1e-9
        assert np.abs(planned.velocities[0] - v).max() < 1e-9
        # What a controller would interpolate, to the end, is inside the limits.
        positions, speeds, accelerations, jerks = interpolated(planned)
        assert (positions >= limits.lower - TIGHT).all()
        assert (positions <= limits.upper + TIGHT).all()
        assert (np.abs(speeds) <= limits.velocity * (1 + TIGHT) + TIGHT).all()
        assert (np.abs(accelerations) <= limits.acceleration * (1 + 1e-5) + TIGHT).all()
        assert (np.abs(jerks[planned.brake_from :]) <= limits.jerk * (1 + 1e-4) + 1e-3).all()
        assert (planned.velocities[-1] == 0.0).all()
        # Only plans that still had something to say are followed.
        plan = self.accepted[planned.plan_id]
        assert plan.end >= self.now

    def check_request(self, request):
        assert request.stamp == self.now
        assert request.positions.shape == (len(request.times), 4)
        assert np.isfinite(request.positions).all()
        assert 0 <= request.committed <= (request.times >= -1e-9).sum()

    @precondition(lambda self: self.requests)
    @rule(
        kind=st.sampled_from(
            ["good", "good", "good", "wild", "late", "nan", "width", "names", "old", "stranger", "far"]
        ),
        age=st.floats(0.0, 0.4),
    )
    def answer(self, kind, age):
        request = self.requests[-1] if kind != "old" else self.requests[0]
        age = min(age, self.now - request.stamp + 0.05)
        chunk = self.chunk(request.request_id, age, wildness=3.0 if kind == "wild" else 0.3)
        positions, names, request_id = chunk.positions, chunk.joint_names, chunk.request_id
        t0 = chunk.t0
        if kind == "nan":
            positions[self.rng.integers(40), self.rng.integers(4)] = np.nan
        elif kind == "width":
            positions = positions[:, :3]
        elif kind == "names":
            names = ("a", "b", "c", "elbow")
        elif kind == "stranger":
            request_id = "ffff:7"
        elif kind == "far":
            t0 += 10.0
        elif kind == "late":
            t0 -= 50.0
        chunk = ActionChunk(t0, self.dt, names, positions, request_id, self.now)
        refusal = self.executor.offer(self.now, chunk)
        if kind in ("nan", "width", "names", "stranger", "far", "late"):
            assert refusal is not None
        if refusal is None:
            self.accepted[request_id] = chunk

    @precondition(lambda self: self.command is not None and self.said is not None)
    @rule(there=st.booleans(), judged=st.booleans())
    def hand_over(self, there, judged):
        """The watchdog takes the command (and drives the last command to its end), or lets the last plan pass again.

        While it has the command it judges what is planned, or does not (an operator drives).
        """
        if there and not self.in_command:
            self.command = self.said
        self.in_command, self.judged = there, judged

    @rule(stopped=st.booleans())
    def joint_states(self, stopped):
        self.joints_stopped = stopped

    @rule(blend=st.sampled_from(["cut", "crossfade", "rtc", "ensemble"]))
    def retune(self, blend):
        k = self.executor.settings.k
        tuned = executor_settings(blend=blend, k=k, max_jump=0.0, max_speed_ratio=0.0)
        if self.executor.refuses(tuned) is None:
            self.executor.retune(tuned)

    @rule()
    def flush(self):
        self.executor.flush("test")

    @invariant()
    def counters_add_up(self):
        if not hasattr(self, "executor"):
            return
        snapshot = self.executor.snapshot()
        assert snapshot["refused_total"] == sum(snapshot["refused"].values())
        assert snapshot["planned"] <= snapshot["ticks"]


# The campaign: VLA_HISTORIES=10000 python -m pytest test/control/test_executor_properties.py
Histories.TestCase.settings = settings(
    max_examples=int(os.environ.get("VLA_HISTORIES", "60")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistories = Histories.TestCase
