"""Checks of the policy on this machine: bundle, engine, parity record, latency against the horizon."""

import time
from pathlib import Path

import numpy as np

from vla_runtime.control.schedule import k_range
from vla_runtime.toolchain.selftest.result import FAIL, OK, WARN, Result

PERIOD_S = 0.02
RUNS = 30


def policy(bundle: Path, engine: str) -> list[Result]:
    """Load a bundle with an engine, look for its parity record, and time inferences on blank pictures.

    Returns:
        Results of the checks ``engine``, ``parity`` and ``latency``; later ones are left out when an earlier fails.
    """
    from vla_runtime.engines.errors import EngineError
    from vla_runtime.policy.errors import PolicyError
    from vla_runtime.policy.policy import load_policy

    begin = time.monotonic()
    try:
        loaded = load_policy(bundle, engine, allow_unproven=True)
        loaded.warm_up()
    except (PolicyError, EngineError) as error:
        return [Result("engine", FAIL, str(error), f"check the bundle with: vla bundle check {bundle}")]
    seconds = time.monotonic() - begin
    names = sorted({stage.name for stage in loaded.engines.values()})
    results = [Result("engine", OK, f"{loaded.bundle.policy.name} on {', '.join(names)}, ready after {seconds:.1f} s")]
    results.append(_parity(loaded, engine))
    results.append(_latency(loaded))
    return results


def _parity(loaded, engine: str) -> Result:
    from vla_runtime.policy.errors import PolicyError
    from vla_runtime.policy.policy import load_policy
    from vla_runtime.policy.proof import proof_command

    try:
        load_policy(loaded.bundle, engine)
    except PolicyError as error:
        return Result("parity", FAIL, str(error), f"prove it on this machine: {proof_command(loaded.bundle)}")
    return Result("parity", OK, "a passing record for exactly these files")


def _latency(loaded) -> Result:
    from vla_runtime.policy.policy import Observation

    spec = loaded.bundle.policy
    blank = {camera.name: np.zeros((camera.height, camera.width, 3), np.uint8) for camera in spec.cameras}
    state = np.asarray(spec.state.mean, dtype=float)
    observation = Observation(0.0, blank, state, spec.instruction.default)
    times_ms = []
    for seed in range(RUNS):
        begin = time.perf_counter()
        loaded.infer(observation, seed=seed)
        times_ms.append((time.perf_counter() - begin) * 1e3)
    p50, p99 = np.percentile(times_ms, [50, 99])
    safe = k_range(p99 * 1e-3, spec.horizon, spec.dt_s, PERIOD_S)
    delay, horizon = safe.low, safe.low + safe.high
    found = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms: {delay} control ticks of a horizon of {horizon}"
    figures = {"p50_ms": float(p50), "p99_ms": float(p99), "delay_ticks": delay, "horizon_ticks": horizon}
    if safe.low > safe.high:
        return Result(
            "latency",
            FAIL,
            found,
            "inference takes more than half the horizon: no K is safe. See `vla budget`",
            figures,
        )
    if delay > horizon // 4:
        return Result("latency", WARN, f"{found}; safe K: {safe}", "K has little room", figures)
    return Result("latency", OK, f"{found}; safe K: {safe}", figures=figures)
