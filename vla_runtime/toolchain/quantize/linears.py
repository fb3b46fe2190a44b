"""Finds the linear layers of an ONNX graph that can become INT4, and groups them by the tensor they read."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np
import onnx
from onnx import numpy_helper

from vla_runtime.toolchain.quantize.int4 import best_block

LEAST_INPUTS, LEAST_OUTPUTS = 128, 32
VIEWS = ("Reshape", "Cast", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Identity")


@dataclass(frozen=True)
class Linear:
    """One MatMul or Gemm with a constant weight. ``weight`` is (K, N) float32; ``output`` names the node's output."""

    node_index: int
    output: str
    source: str
    initializer: str
    weight: np.ndarray
    block: int
    transposed: bool  # the initialiser holds (N, K), as of a Gemm with transB


@dataclass(frozen=True)
class Skipped:
    """A linear layer that stays as it is, and why."""

    output: str
    shape: tuple[int, int]
    why: str


def find_linears(
    model: onnx.ModelProto, block: int = 128, exclude: Sequence[str] = ()
) -> tuple[dict[str, list[Linear]], list[Skipped]]:
    """Return (linears by the tensor they read, what is left out and why).

    Left out: layers that read the graph's inputs (projectors) or make its logits (LM head), weights that several nodes
    share, fewer than 128 inputs or 32 outputs, inputs that no block from 16 up divides, and what matches
    ``exclude`` (shell patterns on the node's or the output's name).
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = defaultdict(int)
    for node in model.graph.node:
        for name in node.input:
            uses[name] += 1
    inputs = {value.name for value in model.graph.input}
    projected = _behind_views(model, inputs)
    groups: dict[str, list[Linear]] = defaultdict(list)
    skipped: list[Skipped] = []
    for index, node in enumerate(model.graph.node):
        if node.op_type not in ("MatMul", "Gemm") or len(node.input) < 2 or node.input[1] not in weights:
            continue
        tensor = weights[node.input[1]]
        if len(tensor.dims) != 2 or tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        transposed = _attribute(node, "transB", 0) == 1
        k, n = reversed(tensor.dims) if transposed else tensor.dims
        fits = best_block(k, block)
        why = None
        if any(fnmatch(node.name, pattern) or fnmatch(node.output[0], pattern) for pattern in exclude):
            why = "excluded by name"
        elif node.input[0] in projected:
            why = "reads an input of the stage (projector)"
        elif node.output[0] == "logits":
            why = "makes the logits (LM head)"
        elif uses[node.input[1]] > 1:
            why = "its weight is shared"
        elif k < LEAST_INPUTS or fits is None or n < LEAST_OUTPUTS:
            why = f"{k} inputs or {n} outputs are too few, or do not divide into blocks"
        elif node.op_type == "Gemm" and not _plain_gemm(node):
            why = "a Gemm with alpha, beta or transA"
        if why is not None:
            skipped.append(Skipped(node.output[0], (k, n), why))
            continue
        value = numpy_helper.to_array(tensor).astype(np.float32)
        groups[node.input[0]].append(
            Linear(
                index,
                node.output[0],
                node.input[0],
                tensor.name,
                np.ascontiguousarray(value.T) if transposed else value,
                fits,
                transposed,
            )
        )
    return dict(groups), skipped


def _behind_views(model: onnx.ModelProto, inputs: set[str]) -> set[str]:
    """Return the inputs, and tensors that only reshape or cast them."""
    reached = set(inputs)
    for node in model.graph.node:
        if node.op_type in VIEWS and node.input[0] in reached:
            reached.add(node.output[0])
    return reached


def _plain_gemm(node: onnx.NodeProto) -> bool:
    return (
        _attribute(node, "alpha", 1.0) == 1.0
        and _attribute(node, "beta", 1.0) == 1.0
        and _attribute(node, "transA", 0) == 0
    )


def _attribute(node: onnx.NodeProto, name: str, default):
    return next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)
