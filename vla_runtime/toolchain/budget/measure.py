"""``this``: the computer that the command runs on, measured instead of looked up.

Two figures for the floor, the best that was seen: bandwidth of a copy (bytes read plus bytes written a second) and rate
of a large matrix product. And rates for operators: those that were timed one by one (``engine_rates``) cost what they
cost; the others use the rate measured for their number of columns (tokens). Only fp32: that is what it runs.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetUsageError
from vla_runtime.toolchain.budget.hardware import Efficiency, OperatorTime, tensor_bytes
from vla_runtime.toolchain.budget.operators import Operator
from vla_runtime.toolchain.budget.precision import Precision

INNER = 1024  # width and depth of the products that are timed: 4 MB of fp32 weights
COLUMNS = (1, 8, 64, 256)
COPY_BYTES = 32 * 2**20  # above any private cache; a shared last-level cache of a server may still hold it


@dataclass(frozen=True)
class MeasuredComputer:
    """A computer whose rates were measured here and now.

    Attributes:
        bandwidth_bytes_s: of a large copy, read and written bytes together.
        gemm_flop_s: (columns, FLOP/s) of fp32 products INNER x INNER x columns, ascending.
        threads: CPU threads that the products used.
        busy_share: of the measuring time, what other processes took from this one (one thread only, else 0).
    """

    name: str
    title: str
    bandwidth_bytes_s: float
    gemm_flop_s: tuple[tuple[int, float], ...]
    threads: int
    memory_gb: float
    cache_mb: float
    efficiency: Efficiency
    busy_share: float = 0.0

    def refusal(self, precision: Precision) -> str | None:
        """Only fp32 and, for its bytes, weight-only INT4 are run by the CPU engine."""
        if precision.name in ("fp32", "w4a16"):
            return None
        return f"{self.title} ('this') was measured in fp32 alone; {precision.name} is not what its engine runs"

    def time(self, operator: Operator, precision: Precision, unit: str = "binary") -> OperatorTime:
        """Return the measured time of the operator, or one from the rates; ``unit`` changes nothing measured."""
        moved = sum(tensor_bytes(tensor, operator, precision) for tensor in operator.tensors)
        memory = moved / self.bandwidth_bytes_s
        measured = operator.measured_s
        if measured is None:
            return OperatorTime(2 * operator.macs / self.rate(operator), memory if operator.macs else 0.0)
        if not operator.tensors:
            return OperatorTime(0.0, 0.0, measured)
        if operator.macs:
            return OperatorTime(measured, min(memory, measured))
        return OperatorTime(0.0, measured)

    def floor(self, operator: Operator, precision: Precision) -> tuple[float, float]:
        """Return seconds of arithmetic at the best rate seen here, and of weights and cached keys at copy bandwidth.

        Neither is longer than what the operator was seen to take: a floor is not above the ground.
        """
        measured = float("inf") if operator.measured_s is None else operator.measured_s
        needed = sum(
            tensor_bytes(tensor, operator, precision) for tensor in operator.tensors if tensor.role != "activation"
        )
        arithmetic = 2 * operator.macs / self.peak_flop_s
        return min(arithmetic, measured), min(needed / self.bandwidth_bytes_s, measured)

    @property
    def peak_flop_s(self) -> float:
        """The best rate of a product seen."""
        return max(rate for _, rate in self.gemm_flop_s)

    def rate(self, operator: Operator) -> float:
        """Return the FLOP/s of a product by its columns, interpolated between the measured ones (log by log)."""
        columns = operator.shape[0] * operator.shape[2] if operator.shape and not operator.attention else COLUMNS[-1]
        points = self.gemm_flop_s
        if columns <= points[0][0] or len(points) == 1:
            return points[0][1]
        for (low, low_rate), (high, high_rate) in zip(points, points[1:]):
            if columns <= high:
                share = log(columns / low) / log(high / low)
                return exp(log(low_rate) + share * log(high_rate / low_rate))
        return points[-1][1]


def measure_this(
    threads: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> MeasuredComputer:
    """Measure the computer at hand in about 0.3 s.

    Args:
        threads: CPU threads of the products, as the engine would use them.

    Raises:
        BudgetError: ``threads`` is not positive.
    """
    if threads < 1:
        raise BudgetUsageError(f"threads must be at least 1, not {threads}")
    wall, cpu = clock(), cpu_clock()
    rates = tuple((columns, gemm_rate(columns, threads, clock)) for columns in COLUMNS)
    wall, cpu = clock() - wall, cpu_clock() - cpu
    return MeasuredComputer(
        name="this",
        title=cpu_model(),
        bandwidth_bytes_s=copy_bandwidth(clock),
        gemm_flop_s=rates,
        busy_share=max(0.0, 1 - cpu / wall) if threads == 1 and wall > 0 else 0.0,
        threads=threads,
        memory_gb=_memory_gb(),
        cache_mb=_cache_mb(),
        efficiency=Efficiency(1.0, "rates are measured on this machine, at the operators' own sizes"),
    )


def copy_bandwidth(clock: Callable[[], float] = time.perf_counter, size: int = COPY_BYTES) -> float:
    """Return bytes a second of copying ``size`` bytes, reads and writes counted; the best of four, one core."""
    import numpy as np

    source = np.ones(size // 8)
    target = np.empty_like(source)
    return 2 * source.nbytes / min(_durations(lambda: np.copyto(target, source), 4, clock))


def gemm_rate(columns: int, threads: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the FLOP/s of the engine's fp32 product, INNER x INNER weights, ``columns`` columns; best of five."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from vla_runtime.toolchain.budget.engine_rates import session

    weights = numpy_helper.from_array(np.full((INNER, INNER), 0.5, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [columns, INNER]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    runner = session(model.SerializeToString(), threads)
    feeds = {"x": np.full((columns, INNER), 0.5, np.float32)}
    return 2 * INNER * INNER * columns / min(_durations(lambda: runner.run(None, feeds), 5, clock))


def cpu_model() -> str:
    """Return the CPU's name as the kernel states it, with the number of cores at hand."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = _lines("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return f"{names[0] if names else 'this CPU'}, {cores} cores"


def _durations(run: Callable[[], object], times: int, clock: Callable[[], float]) -> list[float]:
    run()
    durations = []
    for _ in range(times):
        before = clock()
        run()
        durations.append(clock() - before)
    return durations


def _memory_gb() -> float:
    totals = [line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")]
    return float(totals[0]) * 1024 / 1e9 if totals else float("inf")


def _cache_mb() -> float:
    """Return the size of the largest cache, which may keep weights between two passes."""
    sizes = [
        line for path in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")) for line in _lines(path)
    ]
    units = {"K": 1024 / 1e6, "M": 1024**2 / 1e6}
    return max((float(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=0.0)


def _lines(path: str | Path) -> Iterable[str]:
    try:
        return Path(path).read_text(encoding="utf-8").split("\n")
    except OSError:
        return []
