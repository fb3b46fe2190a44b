"""A stage's linears in INT8, weights and activations: for prefill and flow steps, which compute more than they read.

Symmetric, as TensorRT wants it: weights by output, activations by tensor, with the largest magnitude that calibration
saw. QuantizeLinear and DequantizeLinear stand around each product; engines fuse them with it.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.activations import gather_moments
from vla_runtime.toolchain.quantize.awq import output_error
from vla_runtime.toolchain.quantize.linears import Linear, find_linears
from vla_runtime.toolchain.quantize.rewrite import at_opset, put_product, tidy
from vla_runtime.toolchain.quantize.stage import LayerReport, StageReport

HIGHEST = 127
METHOD = "int8"


def quantise_int8(
    model: onnx.ModelProto,
    inputs: Iterable[dict[str, np.ndarray]],
    *,
    exclude: Sequence[str] = (),
    threads: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[onnx.ModelProto, StageReport]:
    """Return (the graph with INT8 linears, what was done); the errors reported are those of the weights.

    Raises UserError when no layer can be quantised, or there are no ``inputs`` to calibrate on.
    """
    model = at_opset(model)
    groups, skipped = find_linears(model, exclude=exclude)
    if not groups:
        raise UserError(f"no layer can become INT8; left out: {[f'{each.output}: {each.why}' for each in skipped]}")
    moments = gather_moments(model, list(groups), inputs, threads)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    layers = []
    for done, (source, linears) in enumerate(groups.items()):
        rounded = _round_activations(made.graph, source, max(moments[source].largest, 1e-12) / HIGHEST)
        for linear in linears:
            q, scales = quantise(linear.weight)
            _replace(made.graph, linear, rounded, q, scales)
            error = output_error(linear.weight, q * scales, moments[source].second)
            layers.append(LayerReport(linear.output, linear.weight.shape, linear.weight.shape[0], error, error))
        progress(done + 1, len(groups))
    tidy(made)
    return made, StageReport(METHOD, layers, skipped)


def quantise(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (q (K, N) int8 in [-127, 127], scales (N,) float32); outputs without weights get scale 1."""
    scales = (np.abs(weight).max(axis=0) / HIGHEST).astype(np.float32)
    scales[scales == 0] = 1.0
    return np.rint(weight / scales).clip(-HIGHEST, HIGHEST).astype(np.int8), scales


def _round_activations(graph: onnx.GraphProto, source: str, scale: float) -> str:
    """Add the pair that rounds ``source``; return the rounded tensor's name."""
    names = [f"{source}.int8_scale", f"{source}.int8_zero"]
    graph.initializer.append(numpy_helper.from_array(np.float32(scale), names[0]))
    graph.initializer.append(numpy_helper.from_array(np.int8(0), names[1]))
    q, back = f"{source}.int8", f"{source}.rounded"
    graph.node.append(helper.make_node("QuantizeLinear", [source, *names], [q], name=q))
    graph.node.append(helper.make_node("DequantizeLinear", [q, *names], [back], name=back))
    return back


def _replace(graph: onnx.GraphProto, linear: Linear, source: str, q: np.ndarray, scales: np.ndarray) -> None:
    name = f"{linear.initializer}.int8"
    names = [name, f"{name}_scale", f"{name}_zero"]
    for tensor, value in zip(names, (q, scales, np.zeros(scales.shape, np.int8))):
        graph.initializer.append(numpy_helper.from_array(value, tensor))
    graph.node.append(helper.make_node("DequantizeLinear", names, [f"{name}.float"], name=f"{name}.float", axis=1))
    put_product(graph, linear, source, f"{name}.float")
    _keep_bias_apart(graph, linear.output)


def _keep_bias_apart(graph: onnx.GraphProto, output: str) -> None:
    """Turn the addition of a bias after the product into a subtraction.

    ONNX Runtime makes one Gemm of MatMul and Add before it looks for roundings to fuse, and then runs that in float32,
    slower than if nothing had been quantised.
    """
    maker = next(node for node in graph.node if output in node.output)
    product = output if maker.op_type == "MatMul" else maker.input[0]
    readers = [node for node in graph.node if product in node.input]
    constants = {tensor.name: tensor for tensor in graph.initializer}
    if len(readers) != 1 or readers[0].op_type != "Add":
        return
    bias = next((name for name in readers[0].input if name in constants), None)
    if bias is None:
        return
    negative = f"{bias}.negative"
    if negative not in constants:
        graph.initializer.append(numpy_helper.from_array(-numpy_helper.to_array(constants[bias]), negative))
    readers[0].op_type = "Sub"
    readers[0].input[:] = [product, negative]
