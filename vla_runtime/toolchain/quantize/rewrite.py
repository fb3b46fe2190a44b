"""Rewrites linears of an ONNX graph to INT4: DequantizeLinear(axis=0, block_size) + MatMul, weights stored [K, N].

This is the one form that ONNX Runtime fuses to a 4-bit kernel and TensorRT parses. A scale is folded into the norm
that makes the input where only these linears read it; else the input is multiplied once.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.toolchain.quantize.int4 import pack
from vla_runtime.toolchain.quantize.linears import Linear

OPSET = 21
NORMS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")


@dataclass(frozen=True)
class Quantised:
    """What becomes of one linear: its (scaled) weight as INT4 values (K, N) and their scales (K/block, N)."""

    linear: Linear
    q: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class GroupPlan:
    """What becomes of all linears that read ``source``: ``scale`` (K,) divides their input; None: leave it."""

    source: str
    scale: np.ndarray | None
    members: list[Quantised]


def at_opset(model: onnx.ModelProto, opset: int = OPSET) -> onnx.ModelProto:
    """Return the model at ``opset`` or later: INT4 exists from 21 on."""
    current = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if current >= opset:
        return model
    from onnx import version_converter

    return version_converter.convert_version(model, opset)


def rewrite(model: onnx.ModelProto, plans: list[GroupPlan]) -> onnx.ModelProto:
    """Return a copy of ``model`` in which every planned linear has INT4 weights."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for plan in plans:
        source = plan.source
        if plan.scale is not None and not np.all(plan.scale == 1) and not _fold(made.graph, plan):
            source = _multiply(made.graph, plan)
        for member in plan.members:
            _replace(made.graph, member, source)
    tidy(made)
    return made


def tidy(model: onnx.ModelProto) -> None:
    """Put nodes that were appended in order, drop weights that nothing reads, and say that the file is opset 21's."""
    sort_nodes(model.graph)
    _drop_unused(model.graph)
    model.ir_version = max(model.ir_version, 10)


def put_product(graph: onnx.GraphProto, linear: Linear, source: str, weight: str) -> None:
    """Put MatMul(source, weight) in the place of ``linear``; a Gemm becomes MatMul and Add."""
    node = next(each for each in graph.node if linear.output in each.output)
    bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
    product = f"{linear.output}.product" if bias else linear.output
    replacement = helper.make_node("MatMul", [source, weight], [product], name=node.name)
    graph.node.remove(node)
    graph.node.append(replacement)
    if bias:
        graph.node.append(helper.make_node("Add", [product, bias], [linear.output], name=f"{node.name}.bias"))


def _replace(graph: onnx.GraphProto, member: Quantised, source: str) -> None:
    """Put DequantizeLinear in front of the node's product."""
    linear = member.linear
    old = next(each for each in graph.initializer if each.name == linear.initializer)
    kind = old.data_type
    q, scales = member.q, member.scales
    name = f"{linear.initializer}.int4"
    graph.initializer.append(helper.make_tensor(name, TensorProto.INT4, q.shape, pack(q), raw=True))
    graph.initializer.append(
        numpy_helper.from_array(scales.astype(helper.tensor_dtype_to_np_dtype(kind)), f"{linear.initializer}.scale")
    )
    graph.node.append(
        helper.make_node(
            "DequantizeLinear",
            [name, f"{linear.initializer}.scale"],
            [f"{name}.float"],
            name=f"{linear.initializer}.dequantize",
            axis=0,
            block_size=linear.block,
        )
    )
    put_product(graph, linear, source, f"{name}.float")


def _fold(graph: onnx.GraphProto, plan: GroupPlan) -> bool:
    """Divide the weights of the norm that makes the tensor; False where others read it, or it is not a norm."""
    wanted = {member.linear.output for member in plan.members}
    readers = [node for node in graph.node if plan.source in node.input]
    if any(not wanted & set(node.output) for node in readers) or plan.source in {value.name for value in graph.output}:
        return False
    maker = next((node for node in graph.node if plan.source in node.output), None)
    if maker is None:
        return False
    constants = {tensor.name: tensor for tensor in graph.initializer}
    if maker.op_type in NORMS:
        names = [name for name in maker.input[1:3] if name]
    elif maker.op_type == "Mul":
        names = [name for name in maker.input if name in constants]
    else:
        return False
    width = plan.scale.size
    if not names or any(name not in constants or _uses(graph, name) > 1 for name in names):
        return False
    if any(list(constants[name].dims)[-1:] != [width] or np.prod(constants[name].dims) != width for name in names):
        return False
    for name in names:
        value = numpy_helper.to_array(constants[name])
        constants[name].CopyFrom(numpy_helper.from_array((value / plan.scale).astype(value.dtype), name))
    return True


def _multiply(graph: onnx.GraphProto, plan: GroupPlan) -> str:
    """Add one Mul by 1/scale between the tensor and the group; return the new tensor's name."""
    first = plan.members[0].linear
    kind = next(each for each in graph.initializer if each.name == first.initializer).data_type
    factor, scaled = f"{plan.source}.awq_factor", f"{plan.source}.awq"
    value = (1.0 / plan.scale).astype(helper.tensor_dtype_to_np_dtype(kind))
    graph.initializer.append(numpy_helper.from_array(value, factor))
    graph.node.append(helper.make_node("Mul", [plan.source, factor], [scaled], name=scaled))
    return scaled


def _uses(graph: onnx.GraphProto, name: str) -> int:
    return sum(list(node.input).count(name) for node in graph.node)


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Order the nodes so that each comes after what it reads; nodes were appended at the end."""
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer} | {""}
    waiting, ordered = list(graph.node), []
    while waiting:
        ready = [node for node in waiting if all(name in known for name in node.input)]
        if not ready:
            raise ValueError(f"the graph has a cycle, or reads a tensor that nothing makes, at {waiting[0].name}")
        ordered += ready
        for node in ready:
            known.update(node.output)
        done = {id(node) for node in ready}
        waiting = [node for node in waiting if id(node) not in done]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def _drop_unused(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
