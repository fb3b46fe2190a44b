"""Operators read from an ONNX file: every product with its multiply-accumulates and tensors, everything else by size.

So the budget of a bundle is that of its graphs, not of what somebody wrote down about them. Needs ``onnx``.
"""

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.operators import Operator, Tensor

Shapes = Mapping[str, tuple[int, ...]]


def load_graph(path: Path, *, weights: bool = False):
    """Return the ONNX model at ``path``; ``weights`` also reads those kept in files beside it.

    Raises:
        BudgetError: there is no such file, or it is no ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=weights)
    except (OSError, DecodeError, ValueError) as error:
        raise BudgetError(f"{path}: not readable as ONNX: {error}") from None
    if not model.graph.node:
        raise BudgetError(f"{path}: no ONNX model (its graph has no operators)")
    return model


def static_shapes(model, where: str) -> dict[str, tuple[int, ...]]:
    """Infer the shape of every tensor that ONNX can; axes without a fixed length are left out with their tensor.

    Raises:
        BudgetError: the graph contradicts itself, or an input has no fixed shape.
    """
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # onnx raises its own C++ exceptions, which share no base class
        raise BudgetError(f"{where}: shapes cannot be inferred: {error}") from None
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in [*graph.value_info, *graph.input, *graph.output]:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    loose = [value.name for value in graph.input if value.name not in shapes]
    if loose:
        raise BudgetError(f"{where}: input '{loose[0]}' has an axis without a fixed length; export with fixed shapes")
    return shapes


def constants(model) -> set[str]:
    """Return the names of tensors that do not depend on an input: weights, and what is computed from them alone."""
    names = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        inputs = [name for name in node.input if name]
        if all(name in names for name in inputs) and not any(item.HasField("g") for item in node.attribute):
            names |= set(node.output)
    return names


def operators_of(model, shapes: Shapes, where: str) -> list[Operator]:
    """Return the operators of a graph in order. Operators that only re-label memory (Reshape, ...) are left out.

    Raises:
        BudgetError: a product whose shapes are not known.
    """
    fixed = constants(model)
    found = []
    for node in model.graph.node:
        if all(name in fixed for name in node.output if name):
            continue
        operator = operator_of(node, shapes, fixed, where)
        if operator is not None:
            found.append(operator)
    return found


def operator_of(node, shapes: Shapes, fixed: Iterable[str], where: str) -> Operator | None:
    """Return one node as an operator, or None if it only re-labels memory."""
    if node.op_type in FREE:
        return None
    read = PRODUCTS.get(node.op_type)
    try:
        if read is not None:
            return read(node, shapes, fixed)
    except KeyError as missing:
        raise BudgetError(f"{where}: {node.op_type} '{node.name}': the shape of {missing} is not known") from None
    sizes = [prod(shapes[name]) for name in (*node.input, *node.output) if name in shapes]
    return Operator(node.op_type, "other", 0, tuple(Tensor("activation", size) for size in sizes))


def _product(name: str, macs: int, inputs: int, other: int, outputs: int, constant: bool, shape) -> Operator:
    tensors = (
        Tensor("activation", inputs),
        Tensor("weight" if constant else "kv", other),
        Tensor("activation", outputs),
    )
    return Operator(name, "gemm" if constant else "attention", macs, tensors, shape)


def _matmul(node, shapes: Shapes, fixed) -> Operator:
    """MatMul and its fused form; with both operands in memory either may be the weight."""
    a, b, out = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    inner = b[-2] if len(b) > 1 else b[0]
    if _attribute(node, "transB", 0) and len(b) > 1:
        inner = b[-1]
    columns, rows = (out[-2] if len(out) > 1 else 1), (out[-1] if out else 1)
    batch = prod(out) // max(1, rows * columns)
    sizes = (prod(b), prod(a)) if node.input[0] in fixed else (prod(a), prod(b))
    constant = node.input[0] in fixed or node.input[1] in fixed
    return _product(node.op_type, prod(out) * inner, *sizes, prod(out), constant, (batch, rows, columns, inner))


def _gemm(node, shapes: Shapes, fixed) -> Operator:
    a, b, out = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    inner = a[0] if _attribute(node, "transA", 0) else a[1]
    constant = node.input[1] in fixed
    return _product("Gemm", prod(out) * inner, prod(a), prod(b), prod(out), constant, (1, out[1], out[0], inner))


def _conv(node, shapes: Shapes, fixed) -> Operator:
    a, w, out = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    inner = prod(w[1:])
    pixels = prod(out[2:])
    return _product(node.op_type, prod(out) * inner, prod(a), prod(w), prod(out), True, (out[0], out[1], pixels, inner))


def _matmul_nbits(node, shapes: Shapes, fixed) -> Operator:
    """A product with block-quantised weights: K inputs and N outputs are attributes."""
    inner, rows = _attribute(node, "K", 0), _attribute(node, "N", 0)
    a = shapes[node.input[0]]
    tokens = prod(a) // inner
    return _product(node.op_type, tokens * inner * rows, prod(a), inner * rows, tokens * rows, True,
                    (1, rows, tokens, inner))  # fmt: skip


def _attention(node, shapes: Shapes, fixed) -> Operator:
    """ONNX's Attention (opset 23), or ONNX Runtime's MultiHeadAttention: queries, keys and values side by side."""
    query, key = shapes[node.input[0]], shapes[node.input[1]]
    if node.domain == "com.microsoft" and node.op_type == "Attention":  # projections included: inputs and weights
        tokens, width = query[-2], key[-1] // 3
        macs = query[0] * tokens * width * (3 * query[-1] + 2 * tokens)
        tensors = (Tensor("activation", prod(query)), Tensor("weight", prod(key)), Tensor("activation", prod(query)))
        return Operator(node.op_type, "gemm", macs, tensors, (query[0], 3 * width, tokens, query[-1]))
    tokens, keys = query[-2], key[-2]
    heads = query[1] if len(query) == 4 else _attribute(node, "q_num_heads", _attribute(node, "num_heads", 1))
    width = query[-1] * (heads if len(query) == 4 else 1)
    macs = 2 * query[0] * tokens * keys * width
    tensors = (Tensor("activation", prod(query)), Tensor("kv", 2 * prod(key)), Tensor("activation", prod(query)))
    return Operator(node.op_type, "attention", macs, tensors, (query[0] * heads, keys, tokens, width // heads))


def _attribute(node, name: str, default: int) -> int:
    return next((item.i for item in node.attribute if item.name == name), default)


FREE = {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Constant", "Shape", "Dropout"}
PRODUCTS = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "Conv": _conv,
    "FusedConv": _conv,
    "MatMulNBits": _matmul_nbits,
    "Int4Product": _matmul_nbits,  # ours, with the same attributes
    "Attention": _attention,
    "MultiHeadAttention": _attention,
}
