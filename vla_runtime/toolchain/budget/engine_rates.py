"""What this machine's engine needs for each operator of a stage, measured one operator at a time.

A data sheet says nothing useful about small matrices on a CPU: the rate depends on every size. So the graph is taken as
ONNX Runtime optimises it, equal operators become a model of their own, and that model is timed with the engine's own
settings. No prediction times the stage itself: what is predicted is that the whole costs the sum of its parts.

Operators keep their own weights and are fed what reaches them in the graph. With one set of weights for all of them the
cache would hold it, as it cannot hold the stage's. And with random numbers a softmax would not do its work: over the
wide logits of a trained attention it takes ten times as long as over normal numbers, because the results are denormal.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vla_runtime.engines.int4.library import find_library
from vla_runtime.engines.onnxruntime_engine import OnnxRuntimeEngine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.onnx_graph import FREE, constants, load_graph, operator_of
from vla_runtime.toolchain.budget.operators import Operator
from vla_runtime.toolchain.budget.timing import Run, Timing, Timings, timed

CHAIN = 65
# A call runs all equal operators of a stage, at least AT_LEAST (so that the call does not drown them) and at most
# AT_MOST, unless that is guessed to take longer than LONGEST_S
AT_LEAST, AT_MOST, LONGEST_S, GUESSED_FLOP_S, GUESSED_BYTES_S = 4, 40, 1e-2, 2e10, 4e9


@dataclass(frozen=True)
class MeasuredStage:
    """One ONNX file as the engine runs it: operators with ``measured_s`` of one execution, the engine's call last.

    ``whole_s``: all passes of the stage itself, timed in the same rounds, if that was asked for. No prediction uses it.
    """

    operators: list[Operator]
    whole_s: float | None = None


def measure_stages(
    paths: Sequence[Path],
    threads: int = 1,
    timing: Timing | None = None,
    passes: Sequence[int] = (),
    *,
    whole: bool = False,
) -> list[MeasuredStage]:
    """Time the operators of each ONNX file as the engine runs them.

    Operators that only re-label memory cost their start. Give the files in the order in which they run: outputs of one
    feed the inputs of the same name of the next ones. Every intermediate tensor is held in memory once.

    Args:
        threads: CPU threads of the engine. With one, CPU time is measured and then stretched by what other processes
            take from something that long; with more, the mean on the wall.
        passes: how often each file runs in a row (default: once), which makes it as long as that.
        whole: also time the stages themselves, for a comparison that does not depend on what else the machine does.

    Raises:
        BudgetError: a file is not readable, or an operator cannot run alone.
        EngineError: the engine cannot load a file.
    """
    passes = passes or [1] * len(paths)
    runs: dict[object, Run] = {length: _chain(length, threads) for length in (1, CHAIN)}
    runs["engine"] = _engine_call(threads)
    tensors: dict[str, np.ndarray] = {}
    graphs = [_Graph(Path(path), threads, runs, tensors) for path in paths]
    if whole:
        runs.update({graph.path: graph.whole(times) for graph, times in zip(graphs, passes)})
    warm = {"engine", *(graph.path for graph in graphs)}
    timings = timed(runs, timing or Timing(cpu_clock=time.thread_time if threads == 1 else None), warm)
    stages = []
    for graph, times in zip(graphs, passes):
        spent = timings.seconds.get(graph.path)
        whole_s = None if spent is None else spent * timings.stretch(spent)
        stages.append(MeasuredStage(graph.measured(timings, times), whole_s))
    return stages


def session(model: bytes, threads: int, *, optimise: bool = True):
    """Return an ONNX Runtime session with the settings of the package's engine."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    library = find_library()
    if library is not None:
        options.register_custom_ops_library(str(library.path))
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass
class _Graph:
    """One stage as the engine optimises it: its distinct operators by key, and a way to run each kind in ``runs``.

    ``executions`` says how often one run executes an operator; those that only re-label memory are in no run.
    ``inputs`` is what the stages before it have put out; its own outputs are added.
    """

    path: Path
    threads: int
    runs: dict[object, Run]
    inputs: dict[str, np.ndarray]
    operators: dict[tuple, Operator] = field(default_factory=dict)
    executions: dict[tuple, int] = field(default_factory=dict)

    def __post_init__(self):
        model = self._optimised()
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._probe(model)
        fixed = constants(model)
        groups: dict[tuple, list] = {}
        for node in model.graph.node:
            groups.setdefault((node.op_type,) if node.op_type in FREE else self._key(node), []).append(node)
        for key, nodes in groups.items():
            if nodes[0].op_type in FREE:
                self.operators[key] = Operator(nodes[0].op_type, "other", 0, (), repeat=len(nodes))
                continue
            operator = operator_of(nodes[0], self.shapes, fixed, str(self.path))
            self.operators[key] = replace(operator, repeat=len(nodes))
            self.executions[key] = _executions(operator, len(nodes))
            self.runs[self.path, key] = self._alone(model, nodes, self.executions[key])
        self.tensors = {}

    def whole(self, passes: int) -> Run:
        """Return a call of the package's engine that runs the stage ``passes`` times in a row."""
        engine = OnnxRuntimeEngine(self.path, self.path.stem, EngineSettings(threads=self.threads))

        def run() -> None:
            for _ in range(passes):
                engine.run(self.feeds)

        return run

    def measured(self, timings: Timings, passes: int) -> list[Operator]:
        """Return the operators with their times, and the engine's call."""
        seconds = timings.seconds
        start = max((seconds[CHAIN] - seconds[1]) / (CHAIN - 1), 0.0)
        call = max(seconds[1] - start, 0.0)
        found = []
        for key, operator in self.operators.items():
            alone = (seconds[self.path, key] - call) / self.executions[key] if key in self.executions else 0.0
            found.append(replace(operator, measured_s=max(alone, start)))
        found.append(Operator("engine call", "other", 0, (), measured_s=seconds["engine"]))
        stretch = timings.stretch(passes * sum(operator.measured_s * operator.repeat for operator in found))
        return [replace(operator, measured_s=operator.measured_s * stretch) for operator in found]

    def _optimised(self):
        load_graph(self.path)  # a clear error before the engine's
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "optimised.onnx"
            settings = EngineSettings(threads=self.threads, optimised_path=target)
            engine = OnnxRuntimeEngine(self.path, self.path.stem, settings)
            model = load_graph(target, weights=True)
        for tensor in model.graph.initializer:
            packed = engine.packed_weights.get(tensor.name)
            if packed is not None:  # the file has a placeholder for it
                tensor.dims[:], tensor.raw_data = packed.shape, packed.tobytes()
        return model

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
        generator = np.random.default_rng(0)
        self.feeds = feeds = {}
        for value in model.graph.input:
            kind = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            known = self.inputs.get(value.name)
            fits = known is not None and known.shape == shape and known.dtype == dtype
            feeds[value.name] = known if fits else _values(generator, shape, dtype)
        names = [value.name for value in runner.get_outputs()]
        self.tensors = {**feeds, **dict(zip(names, runner.run(names, feeds)))}
        self.inputs.update({value.name: self.tensors[value.name] for value in model.graph.output})
        self.shapes = {name: tuple(np.shape(value)) for name, value in self.tensors.items()}
        self.shapes.update({name: tuple(tensor.dims) for name, tensor in self.weights.items()})

    def _alone(self, model, nodes: list, executions: int) -> Run:
        """Return a call that runs ``executions`` of the equal ``nodes``, on what reaches them in the graph."""
        from onnx import NodeProto, helper

        twins, outputs = [], []
        names: dict[str, None] = {}
        for index in range(executions):
            node = nodes[index % len(nodes)]
            twin = NodeProto()
            twin.CopyFrom(node)
            twin.name = f"{node.name}/{index}"
            for position, name in enumerate(node.output):
                if name:
                    twin.output[position] = f"{name}/{index}"
                    outputs.append(helper.make_tensor_value_info(twin.output[position], *self._type(name)))
            names.update(dict.fromkeys(name for name in node.input if name))
            twins.append(twin)
        live = [name for name in names if name not in self.weights]
        inputs = [helper.make_tensor_value_info(name, *self._type(name)) for name in live]
        kept = [self.weights[name] for name in names if name in self.weights]
        graph = helper.make_graph(twins, "operators", inputs, outputs, kept)
        single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        feeds = {name: self.tensors[name] for name in live}
        wanted = [outputs[0].name]
        try:
            # Not optimised again: equal operators would be merged into one
            runner = session(single.SerializeToString(), self.threads, optimise=False)
            runner.run(wanted, feeds)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            where = f"{self.path}: {nodes[0].op_type} '{nodes[0].name}'"
            raise BudgetError(f"{where} cannot be timed alone: {error}") from error
        return lambda: runner.run(wanted, feeds)

    def _type(self, name: str) -> tuple[int, tuple[int, ...]]:
        from onnx import helper

        return helper.np_dtype_to_tensor_dtype(np.asarray(self.tensors[name]).dtype), self.shapes[name]

    def _key(self, node) -> tuple:
        """Equal keys are equal work: kind, attributes, shapes, which operands are weights, and short integer ones."""
        attributes = tuple(sorted(item.SerializeToString(deterministic=True) for item in node.attribute))
        operands = []
        for name in node.input:
            weight = self.weights.get(name)
            short = weight is not None and np.issubdtype(_dtype(weight), np.integer) and sum(weight.dims) <= 8
            operands.append((self.shapes.get(name), weight is not None, weight.SerializeToString() if short else b""))
        return node.domain, node.op_type, attributes, tuple(operands)


def _executions(operator: Operator, count: int) -> int:
    """Return how many executions go into one call, of ``count`` equal operators, by a rough guess of one."""
    guess = 2 * operator.macs / GUESSED_FLOP_S + 4 * operator.elements("activation", "kv") / GUESSED_BYTES_S
    wanted = min(max(count, AT_LEAST), AT_MOST)
    return max(1, min(wanted, int(LONGEST_S / guess))) if guess > 0 else wanted


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
    """Normal numbers, an open mask, or the first word of a vocabulary."""
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(shape).astype(dtype)
    return np.ones(shape, dtype) if dtype == np.bool_ else np.zeros(shape, dtype)
