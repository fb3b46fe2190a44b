"""What this machine's engine needs for each operator of a stage, measured one operator at a time.

A data sheet says nothing useful about small matrices on a CPU: the rate depends on every size. So the graph is taken as
ONNX Runtime optimises it, each distinct operator becomes a model of its own, and that model is timed with the engine's
own settings. The stage itself is never timed: what is predicted is that the whole costs the sum of its parts.

Operators are fed what reaches them in the graph, not random numbers: a softmax over the wide logits of a trained
attention takes ten times as long as one over normal numbers, because what it makes of them is denormal.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vla_runtime.engines.onnxruntime_engine import OnnxRuntimeEngine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.onnx_graph import FREE, constants, load_graph, operator_of
from vla_runtime.toolchain.budget.operators import Operator
from vla_runtime.toolchain.budget.timing import Run, Timing, Timings, timed

CHAIN = 65
# Short operators are run several times in one call, so that the call does not drown them
COPIES, CALL_S, GUESSED_FLOP_S, GUESSED_BYTES_S = 16, 2e-4, 2e10, 4e9


def measured_operators(
    paths: Sequence[Path], threads: int = 1, timing: Timing | None = None, passes: Sequence[int] = ()
) -> list[list[Operator]]:
    """Return the operators of each ONNX file as the engine runs them, with ``measured_s`` of one execution each.

    Equal operators are timed once, also across files. Operators that only re-label memory cost their start. The last
    operator of each list is the engine's call itself. Give the files in the order in which they run: outputs of one
    feed the inputs of the same name of the next ones. Every intermediate tensor is held in memory once.

    Args:
        threads: CPU threads of the engine. With one, CPU time is measured and then stretched by what other processes
            take from something that long; with more, the mean on the wall.
        passes: how often each file runs in a row (default: once), which makes it as long as that.

    Raises:
        BudgetError: a file is not readable, or an operator cannot run alone.
        EngineError: the engine cannot load a file.
    """
    runs: dict[object, Run] = {length: _chain(length, threads) for length in (1, CHAIN)}
    runs["engine"] = _engine_call(threads)
    tensors: dict[str, np.ndarray] = {}
    graphs = [_Graph(Path(path), threads, runs, tensors) for path in paths]
    timings = timed(runs, timing or Timing(cpu_clock=time.thread_time if threads == 1 else None), warm=("engine",))
    return [graph.measured(timings, times) for graph, times in zip(graphs, passes or [1] * len(graphs))]


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
    """One stage as the engine optimises it: its distinct operators by key, and a way to run each in ``runs``.

    ``copies`` says how often one run executes an operator; those that only re-label memory are in no run. ``inputs`` is
    what the stages before it have put out; its own outputs are added.
    """

    path: Path
    threads: int
    runs: dict[object, Run]
    inputs: dict[str, np.ndarray]
    operators: dict[tuple, Operator] = field(default_factory=dict)
    copies: dict[tuple, int] = field(default_factory=dict)

    def __post_init__(self):
        model = self._optimised()
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._probe(model)
        fixed = constants(model)
        for node in model.graph.node:
            free = node.op_type in FREE
            key = (node.op_type,) if free else self._key(node)
            if key in self.operators:
                self.operators[key] = replace(self.operators[key], repeat=self.operators[key].repeat + 1)
                continue
            if free:
                self.operators[key] = Operator(node.op_type, "other", 0, ())
                continue
            self.operators[key] = operator_of(node, self.shapes, fixed, str(self.path))
            self.copies[key] = _copies(self.operators[key])
            if key not in self.runs:
                self.runs[key] = self._alone(model, node, self.copies[key])
        self.tensors = {}

    def measured(self, timings: Timings, passes: int) -> list[Operator]:
        """Return the operators with their times, and the engine's call."""
        seconds = timings.seconds
        start = max((seconds[CHAIN] - seconds[1]) / (CHAIN - 1), 0.0)
        call = max(seconds[1] - start, 0.0)
        found = []
        for key, operator in self.operators.items():
            alone = (seconds[key] - call) / self.copies[key] if key in self.copies else 0.0
            found.append(replace(operator, measured_s=max(alone, start)))
        found.append(Operator("engine call", "other", 0, (), measured_s=seconds["engine"]))
        stretch = timings.stretch(passes * sum(operator.measured_s * operator.repeat for operator in found))
        return [replace(operator, measured_s=operator.measured_s * stretch) for operator in found]

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
        generator = np.random.default_rng(0)
        feeds = {}
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

    def _alone(self, model, node, copies: int) -> Run:
        """Return a call that runs one node, ``copies`` times side by side, on what reaches it in the graph."""
        from onnx import NodeProto, helper

        names = list(dict.fromkeys(name for name in node.input if name))
        live = [name for name in names if name not in self.weights]
        nodes, outputs = [], []
        for copy in range(copies):
            twin = NodeProto()
            twin.CopyFrom(node)
            twin.name = f"{node.name}/{copy}"
            for index, name in enumerate(node.output):
                if name:
                    twin.output[index] = f"{name}/{copy}"
                    outputs.append(helper.make_tensor_value_info(twin.output[index], *self._type(name)))
            nodes.append(twin)
        inputs = [helper.make_tensor_value_info(name, *self._type(name)) for name in live]
        kept = [self.weights[name] for name in names if name in self.weights]
        graph = helper.make_graph(nodes, "operator", inputs, outputs, kept)
        single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        feeds = {name: self.tensors[name] for name in live}
        try:
            # Not optimised again: the copies would be merged into one
            runner = session(single.SerializeToString(), self.threads, optimise=False)
            runner.run([outputs[0].name], feeds)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            raise BudgetError(f"{self.path}: {node.op_type} '{node.name}' cannot be timed alone: {error}") from error
        return lambda: runner.run([outputs[0].name], feeds)

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


def _copies(operator: Operator) -> int:
    """Return how many executions make a call long enough, by a rough guess of one."""
    guess = 2 * operator.macs / GUESSED_FLOP_S + 4 * operator.elements("activation", "kv") / GUESSED_BYTES_S
    return min(COPIES, max(1, int(CALL_S / guess))) if guess > 0 else COPIES


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
