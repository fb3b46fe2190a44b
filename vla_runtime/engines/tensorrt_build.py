"""From an ONNX file to a TensorRT plan: parse, build, and say what went wrong in the parser's own words."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_runtime.engines.errors import EngineError
from vla_runtime.engines.tensorrt_api import TensorRtApi

Report = Callable[[str, int, int], None]  # phase, steps done, steps in all
WORKSPACE_BYTES = 1 << 30
LEAST_SM_FP8 = 89


@dataclass(frozen=True)
class BuildOptions:
    """``sm``: compute capabilities to build for (87 for an Orin); TensorRT itself builds for the device it runs on.

    ``timing_cache``: file that remembers measured kernels, so that a rebuild is short; None: none.
    """

    sm: tuple[int, ...] = ()
    timing_cache: Path | None = None
    workspace_bytes: int = WORKSPACE_BYTES


def build_plan(api: TensorRtApi, path: Path, options: BuildOptions, report: Report = lambda *_: None) -> bytes:
    """Parse ``path`` and build it; return the serialised plan.

    Raises EngineError with the parser's messages and nodes, or when the builder gives nothing (its log says why).
    """
    trt = api.trt
    refuse_fp8(path, options.sm)
    logger = api.logger()
    builder = trt.Builder(logger)
    network = builder.create_network(api.network_flags())
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        faults = [parser.get_error(i) for i in range(parser.num_errors)]
        text = "; ".join(
            f"node {fault.node()} {fault.node_name()} ({fault.node_operator()}): {fault.desc()}" for fault in faults
        )
        raise EngineError(f"{path}: {api.flavour} {api.version} cannot parse it: {text}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    config.progress_monitor = _monitor(trt, report)
    cache = None
    if api.rtx:
        config.num_compute_capabilities = max(1, len(options.sm))
        for index, sm in enumerate(options.sm):
            config.set_compute_capability(api.capability(sm), index)
    else:
        cache = _timing_cache(config, options.timing_cache)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(
            f"{path}: {api.flavour} {api.version} could not build it for SM {list(options.sm)}; see its log above"
        )
    if cache is not None and options.timing_cache is not None:
        options.timing_cache.parent.mkdir(parents=True, exist_ok=True)
        options.timing_cache.write_bytes(bytes(cache.serialize()))
    return bytes(plan)


def refuse_fp8(path: Path, sm: tuple[int, ...]) -> None:
    """Refuse FP8 weights for a device without FP8, by name: Orin (SM 8.7) has none."""
    too_old = [each for each in sm if each < LEAST_SM_FP8]
    if not too_old:
        return
    import onnx

    kinds = {onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E5M2}
    graph = onnx.load(str(path), load_external_data=False).graph
    found = [tensor.name for tensor in graph.initializer if tensor.data_type in kinds]
    if found:
        raise EngineError(
            f"{path}: '{found[0]}' is FP8, which SM {too_old[0] / 10:.1f} does not have (8.9 and later do); "
            "use INT8 or FP16"
        )


def _timing_cache(config: Any, path: Path | None) -> Any:
    if path is None:
        return None
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    # Entries of another device or version are ignored by TensorRT, not misused.
    config.set_timing_cache(cache, False)
    return cache


def _monitor(trt: Any, report: Report) -> Any:
    class Monitor(trt.IProgressMonitor):
        """Passes TensorRT's own phases on. Exceptions must not cross into C++."""

        def __init__(self):
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name, parent_phase, num_steps):
            self._steps[phase_name] = num_steps
            report(phase_name, 0, num_steps)

        def step_complete(self, phase_name, step):
            report(phase_name, step + 1, self._steps.get(phase_name, step + 1))
            return True

        def phase_finish(self, phase_name):
            steps = self._steps.pop(phase_name, 0)
            report(phase_name, steps, steps)

    return Monitor()
