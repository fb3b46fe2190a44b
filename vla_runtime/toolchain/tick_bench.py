"""How long one tick of the pure control core takes: executor and watchdog, many joints, long chunks, no ROS."""

import time

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import EXECUTOR_TABLE
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE

PERIOD_S = 0.02
DELAY_TICKS = 6


def bench_ticks(joints: int = 14, horizon: int = 100, ticks: int = 2000, seed: int = 0) -> dict[str, dict[str, float]]:
    """Drive both cores through a smooth random policy and time each tick.

    Args:
        joints: number of joints.
        horizon: rows of a chunk, one per control period.
        ticks: ticks to time (the first 100 are left out).
        seed: of the random motion.

    Returns:
        p50_ms, p99_ms and max_ms of ``executor`` and ``watchdog``.
    """
    names = tuple(f"joint_{i}" for i in range(joints))
    limits = Limits.from_dict(
        {"joints": {name: {"lower": -3.0, "upper": 3.0, "velocity": 3.0, "acceleration": 15.0, "jerk": 300.0}
                    for name in names}}
    )  # fmt: skip
    executor = Executor(EXECUTOR_TABLE.load({}), limits)
    watchdog = Watchdog(WATCHDOG_TABLE.load({}), limits)
    rng = np.random.default_rng(seed)
    amplitude, phase = rng.uniform(0.2, 0.8, joints), rng.uniform(0, 2 * np.pi, joints)

    def path(t: np.ndarray) -> np.ndarray:
        return amplitude * np.sin(1.5 * np.asarray(t)[..., None] + phase)

    watchdog.activate(0.0)
    took: dict[str, list[float]] = {"executor": [], "watchdog": []}
    command, pending = None, []
    for number in range(ticks):
        now = number * PERIOD_S
        position = path(now) if command is None else command.sample(now)[0]
        sample = JointSample(now, position, np.zeros(joints), None)
        watchdog.saw_heartbeat(now, "ready")
        while pending and pending[0][0] <= now:
            _, request, t0 = pending.pop(0)
            rows = path(t0 + PERIOD_S * np.arange(horizon)) + rng.normal(0, 0.003, joints)
            watchdog.saw_answer(now, request, t0)
            executor.offer(now, ActionChunk(t0, PERIOD_S, names, rows, request, now))
        driving = watchdog.state in ("NOMINAL", "COASTING")
        begin = time.perf_counter()
        tick = executor.tick(now, sample, command, driving)
        between = time.perf_counter()
        answer = watchdog.tick(now, sample, tick.planned)
        end = time.perf_counter()
        took["executor"].append(between - begin)
        took["watchdog"].append(end - between)
        command = answer.trajectory or command
        if tick.request is not None:
            watchdog.saw_request(now, tick.request.request_id)
            pending.append((now + DELAY_TICKS * PERIOD_S, tick.request.request_id, now))
    return {core: _figures(values[100:]) for core, values in took.items()}


def _figures(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50_ms": float(p50 * 1e3), "p99_ms": float(p99 * 1e3), "max_ms": float(max(seconds) * 1e3)}
