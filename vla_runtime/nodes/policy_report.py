"""What the policy node tells operators: its state, its latencies, the ages of its inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from vla_runtime.control.latency import StageLatencies
from vla_runtime.nodes.camera_flow import lossy
from vla_runtime.nodes.diagnostics import Level, Status
from vla_runtime.nodes.inference import InferenceWorker
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.policy import Policy
from vla_runtime.policy.proof import load_records


def latency_message(stage_ms: Mapping[str, float]) -> Float64MultiArray:
    """One answer's stages: ``layout.dim[i].label`` names the stage, ``data[i]`` is in ms."""
    message = Float64MultiArray(data=[float(ms) for ms in stage_ms.values()])
    message.layout.dim = [MultiArrayDimension(label=stage, size=1, stride=1) for stage in stage_ms]
    return message


def state_status(heartbeat: str, instruction: str, worker: InferenceWorker | None, latencies: StageLatencies) -> Status:
    """``policy/state``."""
    level = Level.OK if heartbeat == "ready" else Level.ERROR if heartbeat.startswith("error") else Level.WARN
    values: dict[str, Any] = {"instruction": instruction}
    if worker is not None:
        values |= {"counters": dict(worker.counters), "latency_ms": latencies.summary_ms().get("total", {})}
    return Status("policy", level, heartbeat, values)


def model_status(policy: Policy) -> Status:
    """Which bundle runs on which engines, and what the process needs in memory."""
    bundle: Bundle = policy.bundle
    values: dict[str, Any] = {
        "bundle": str(bundle.path),
        "family": bundle.policy.family,
        "horizon": bundle.policy.horizon,
        "dt_s": bundle.policy.dt_s,
        "engines": {stage: getattr(engine, "name", type(engine).__name__) for stage, engine in policy.engines.items()},
        "parity": parity_text(bundle, next(iter(policy.engines.values())).name if policy.engines else ""),
        "memory_mb": resident_mb(),
    }
    return Status("model", Level.OK, bundle.policy.name, values)


def inference_status(worker: InferenceWorker, latencies: StageLatencies, expected_ms: float) -> Status:
    """How long answers take, and what went wrong. ``expected_ms``: the horizon; an answer that takes longer is late."""
    values = {"counters": dict(worker.counters), "latency_ms": latencies.summary_ms()}
    total = latencies.summary_ms().get("total", {})
    if worker.error:
        return Status("inference", Level.ERROR, worker.error, values)
    if worker.counters["failures"]:
        return Status(
            "inference", Level.WARN, f"{worker.counters['failures']} inferences failed since activation", values
        )
    if total.get("p99", 0.0) > expected_ms:
        text = f"answers take {total['p99']:.0f} ms (p99), longer than the chunk lasts ({expected_ms:.0f} ms)"
        return Status("inference", Level.ERROR, text, values)
    text = f"{total['p50']:.0f} ms median, {total['p99']:.0f} ms p99" if total else "nothing asked yet"
    return Status("inference", Level.OK, text, values)


def input_status(
    worker: InferenceWorker,
    ages: Mapping[str, float],
    counters: Mapping[str, int],
    flows: Mapping[str, Mapping[str, Any]],
    max_age_s: float,
) -> Status:
    """The inputs' ages when they were last read, how frames come, and why there is no observation, if there is none."""
    values = {"age_s": dict(ages), "counters": dict(counters), "camera": dict(flows), "max_input_age_s": max_age_s}
    losses = lossy(flows)
    problem = worker.not_ready
    if problem is not None:
        level = Level.WARN if problem.kind == "waiting" else Level.ERROR
        return Status("inputs", level, "; ".join(filter(None, (problem.detail, losses))), values)
    if losses:
        return Status("inputs", Level.WARN, losses, values)
    return Status("inputs", Level.OK, "pictures and joints in time", values)


def parity_text(bundle: Bundle, engine: str) -> str:
    """What the bundle's record says of the engine; that it covers these files was asked when it was loaded."""
    verdicts = [record.verdict for record in load_records(bundle) if record.engine == engine]
    return f"{verdicts[-1]} ({engine})" if verdicts else f"none for {engine}: allow_unproven is set"


def resident_mb() -> float:
    """Memory of this process that is in RAM, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
