"""What this machine's engine needs for each operator of a stage, measured one operator at a time.

A data sheet says nothing useful about small matrices on a CPU: the rate depends on every size. So the graph is taken as
ONNX Runtime optimises it, each distinct operator becomes a model of its own, and that model is timed with the engine's
own settings. The stage itself is never timed: what is predicted is that the whole costs the sum of its parts.

Operators are timed in rounds, all of them in turn. With one thread what counts is CPU time, stretched by how much
longer the rounds took on the wall: a time slice that another process takes is longer than most operators, so it must be
shared out among all of them, as it falls on a stage that runs for many slices.
"""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vla_runtime.engines.onnxruntime_engine import OnnxRuntimeEngine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.onnx_graph import FREE, constants, load_graph, operator_of
from vla_runtime.toolchain.budget.operators import Operator

Run = Callable[[], object]
CHAIN = 65


@dataclass(frozen=True)
class Timing:
    """Rounds over all operators: as many as fit in ``seconds``, at least ``least`` and at most ``most``.

    ``cpu_clock``: CPU seconds of the calling thread; None where the work is not done by it alone.
    """

    seconds: float = 0.5
    least: int = 3
    most: int = 20
    clock: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] | None = time.thread_time


def measured_operators(paths: Iterable[Path], threads: int = 1, timing: Timing | None = None) -> list[list[Operator]]:
    """Return the operators of each ONNX file as the engine runs them, with ``measured_s`` of one execution each.

    Equal operators are timed once, also across files. The last operator of each list is the engine's call itself.

    Raises:
        BudgetError: a file is not readable, or an operator cannot run alone.
        EngineError: the engine cannot load a file.
    """
    runs: dict[object, Run] = {length: _chain(length, threads) for length in (1, CHAIN)}
    runs["engine"] = _engine_call(threads)
    graphs = [_Graph(Path(path), threads, runs) for path in paths]
    seconds = mean_seconds(runs, timing or Timing(cpu_clock=time.thread_time if threads == 1 else None))
    call = seconds[1]
    start = max((seconds[CHAIN] - call) / (CHAIN - 1), 0.0)
    results = []
    for graph in graphs:
        timed = [
            replace(operator, measured_s=max(seconds[key] - call, 0.0) + start)
            for key, operator in graph.operators.items()
        ]
        results.append([*timed, Operator("engine call", "other", 0, (), measured_s=seconds["engine"])])
    return results


def mean_seconds(runs: dict[object, Run], timing: Timing) -> dict[object, float]:
    """Return the mean duration of each run, all of them in turn, round by round, after a warm-up round."""
    for run in runs.values():
        run()
    cpu_clock = timing.cpu_clock or timing.clock
    cpu, wall = dict.fromkeys(runs, 0.0), 0.0
    started = timing.clock()
    rounds = 0
    while rounds < timing.least or (rounds < timing.most and timing.clock() - started < timing.seconds):
        for key, run in runs.items():
            before, cpu_before = timing.clock(), cpu_clock()
            run()
            cpu[key] += cpu_clock() - cpu_before
            wall += timing.clock() - before
        rounds += 1
    total = sum(cpu.values())
    stretch = max(1.0, wall / total) if timing.cpu_clock and total > 0 else 1.0
    return {key: seconds / rounds * stretch for key, seconds in cpu.items()}


def session(model: bytes, threads: int, *, optimise: bool = True):
    """Return an ONNX Runtime session with the settings of the package's engine."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass
class _Graph:
    """One stage as the engine optimises it: its distinct operators by key, and a way to run each in ``runs``."""

    path: Path
    threads: int
    runs: dict[object, Run]
    operators: dict[tuple, Operator] = field(default_factory=dict)

    def __post_init__(self):
        model = self._optimised()
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._probe(model)
        fixed = constants(model)
        for node in model.graph.node:
            if node.op_type in FREE:
                continue
            key = self._key(node)
            if key in self.operators:
                self.operators[key] = replace(self.operators[key], repeat=self.operators[key].repeat + 1)
                continue
            self.operators[key] = operator_of(node, self.shapes, fixed, str(self.path))
            if key not in self.runs:
                self.runs[key] = self._alone(model, node)

    def _optimised(self):
        load_graph(self.path)  # a clear error before the engine's
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "optimised.onnx"
            OnnxRuntimeEngine(self.path, self.path.stem, EngineSettings(threads=self.threads, optimised_path=target))
            return load_graph(target, weights=True)

    def _probe(self, model) -> None:
        """Run the graph once with every tensor as an output: shapes of fused operators are not inferable otherwise."""
        import onnx

        probe = onnx.ModelProto()
        probe.CopyFrom(model)
        have = {value.name for value in probe.graph.output}
        for node in probe.graph.node:
            probe.graph.output.extend(
                onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name and name not in have
            )
        runner = session(probe.SerializeToString(), self.threads, optimise=False)
        tensors = {}
        for value in model.graph.input:
            kind = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            tensors[value.name] = np.zeros([dim.dim_value for dim in kind.shape.dim], dtype)
        names = [value.name for value in runner.get_outputs()]
        tensors.update(zip(names, runner.run(names, dict(tensors))))
        self.shapes = {name: tuple(np.shape(value)) for name, value in tensors.items()}
        self.shapes.update({name: tuple(tensor.dims) for name, tensor in self.weights.items()})
        self.types = {name: np.asarray(value).dtype for name, value in tensors.items()}

    def _alone(self, model, node) -> Run:
        """Return a call that runs one node on random numbers."""
        from onnx import helper

        names = list(dict.fromkeys(name for name in node.input if name))
        outputs = [name for name in node.output if name]
        live = [name for name in names if name not in self.weights]

        def info(name: str):
            return helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(self.types[name]), self.shapes[name]
            )

        kept = [self.weights[name] for name in names if name in self.weights]
        graph = helper.make_graph([node], "operator", [*map(info, live)], [*map(info, outputs)], kept)
        single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        generator = np.random.default_rng(0)
        feeds = {name: _values(generator, self.shapes[name], self.types[name]) for name in live}
        try:
            runner = session(single.SerializeToString(), self.threads)
            runner.run(outputs, feeds)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            raise BudgetError(f"{self.path}: {node.op_type} '{node.name}' cannot be timed alone: {error}") from error
        return lambda: runner.run(outputs, feeds)

    def _key(self, node) -> tuple:
        """Equal keys are equal work: kind, attributes, shapes, which operands are weights, and short integer ones."""
        attributes = tuple(sorted(item.SerializeToString(deterministic=True) for item in node.attribute))
        operands = []
        for name in node.input:
            weight = self.weights.get(name)
            short = weight is not None and np.issubdtype(_dtype(weight), np.integer) and sum(weight.dims) <= 8
            operands.append((self.shapes.get(name), weight is not None, weight.SerializeToString() if short else b""))
        return node.domain, node.op_type, attributes, tuple(operands)


def _chain(length: int, threads: int) -> Run:
    """Return a call of a model that is ``length`` sigmoids of four numbers."""
    runner = session(_chain_model(length), threads)
    feeds = {"t0": np.zeros(4, np.float32)}
    return lambda: runner.run(None, feeds)


def _engine_call(threads: int) -> Run:
    """Return a call of the package's engine, its checks of inputs and outputs included, that does next to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.onnx"
        path.write_bytes(_chain_model(1))
        engine = OnnxRuntimeEngine(path, "call", EngineSettings(threads=threads))
    feeds = {"t0": np.zeros(4, np.float32)}
    return lambda: engine.run(feeds)


def _chain_model(length: int) -> bytes:
    """Return a model of operators that cost nothing but their start, and that no optimiser can merge."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Sigmoid", [f"t{i}"], [f"t{i + 1}"]) for i in range(length)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("t0", f"t{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def _dtype(tensor) -> np.dtype:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(tensor.data_type)


def _values(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)
