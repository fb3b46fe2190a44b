"""Puts our product in the place of those of one row with INT4 weights: DequantizeLinear(axis=0, block_size) + MatMul.

More rows stay with ONNX Runtime, whose kernels read a weight once for all of them.
"""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_runtime.engines.int4.library import Library

DOMAIN, OPERATOR = "vla_runtime", "Int4Product"
MOST_BYTES = 2**31 - 1  # of a protobuf message
SHAPE_VALUES = 128  # a constant that says a shape has fewer


@dataclass(frozen=True)
class Replaced:
    """``model``: the graph as bytes, with a placeholder for each packed weight; ``weights``: those, uint8, by name."""

    model: bytes
    weights: dict[str, np.ndarray]


def replace_products(path: Path, library: Library) -> Replaced | None:
    """Return what becomes of the ONNX file ``path``; None where nothing does, so that it is run as it is.

    None too where the onnx package refuses the file, or data beside it: ONNX Runtime says what is wrong, or takes it.
    """
    import onnx
    from google.protobuf.message import Error

    try:
        return _replaced(path, library)
    except (OSError, ValueError, Error, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None


def _replaced(path: Path, library: Library) -> Replaced | None:
    import onnx

    if not _holds(path, b"block_size"):
        return None
    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    makers = {node.output[0]: node for node in graph.node if _is(node, "DequantizeLinear")}
    shapes = _shapes(model)
    products = [node for node in graph.node if _is(node, "MatMul") and node.input[1] in makers]
    products = [node for node in products if math.prod(shapes.get(node.input[0], [0, 0])[:-1]) == 1]
    if not products:
        return None
    given = {value.name for value in graph.input}  # an input's initialiser is only its value when none is given
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in given}
    read = _read(graph)
    made = {name for node in graph.node for name in node.output}
    taken = made | read | given | {tensor.name for tensor in graph.initializer}
    names: dict[tuple[str, str, int], str] = {}  # values and scales may be shared, each with others
    weights: dict[str, np.ndarray] = {}
    declared = {value.name: value for value in (*graph.value_info, *graph.output)}
    for node in products:
        weight, shape = _weight(makers[node.input[1]], constants, path.parent), shapes[node.input[0]]
        if weight is None or not library.fits(*weight.shape, weight.block) or shape[-1] != weight.shape[0]:
            continue
        if weight.key not in names:
            name = names[weight.key] = _free(f"{weight.key[0]}.packed", taken)
            weights[name] = library.pack(weight.q, weight.scales, weight.shape, weight.block)
            graph.initializer.append(_placeholder(name))
        _put(node, names[weight.key], weight)
        _declare(declared.get(node.output[0]) or graph.value_info.add(), node.output[0], [*shape[:-1], weight.shape[1]])
    _drop(graph, read)
    outside = sum(_outside(tensor, path.parent) for tensor in graph.initializer)
    if not weights or model.ByteSize() + outside > MOST_BYTES:
        return None
    onnx.load_external_data_for_model(model, str(path.parent))
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return Replaced(model.SerializeToString(), weights)


@dataclass(frozen=True)
class _Weight:
    """A constant weight (K, N): ``q`` as ONNX packs it, two values in a byte; ``scales`` (K / block, N) float32.

    ``key``: the names of both, and ``block``.
    """

    key: tuple[str, str, int]
    shape: tuple[int, int]
    block: int
    q: np.ndarray
    scales: np.ndarray


def _weight(dequantize: Any, constants: dict[str, Any], folder: Path) -> _Weight | None:
    """Return the weight that the node makes; None where it is none that we pack, or contradicts itself.

    ONNX Runtime then takes the file as it is, and says what is wrong with it.
    """
    from onnx import TensorProto, helper, numpy_helper

    options = {each.name: helper.get_attribute_value(each) for each in dequantize.attribute}
    q, scales = (constants.get(name) for name in dequantize.input[:2])
    if q is None or scales is None or len(dequantize.input) > 2 or options.get("axis", 1) != 0:
        return None
    if options.get("output_dtype", TensorProto.UNDEFINED) not in (TensorProto.UNDEFINED, TensorProto.FLOAT):
        return None
    if q.data_type != TensorProto.INT4 or scales.data_type != TensorProto.FLOAT or len(q.dims) != 2:
        return None
    q, scales = _loaded(q, folder), _loaded(scales, folder)
    (k, n), block = q.dims, options.get("block_size", 0)
    if block < 1 or list(scales.dims) != [k // block, n] or len(q.raw_data) * 2 != k * n:
        return None
    try:
        factors = numpy_helper.to_array(scales)
    except ValueError:  # fewer scales than the tensor says
        return None
    return _Weight((q.name, scales.name, block), (k, n), block, np.frombuffer(q.raw_data, np.uint8), factors)


def _loaded(tensor: Any, folder: Path) -> Any:
    """Return the tensor with its values: those in another file are read into a copy, which is gone once packed."""
    if not tensor.external_data:
        return tensor
    from onnx import TensorProto
    from onnx.external_data_helper import load_external_data_for_tensor

    copy = TensorProto()
    copy.CopyFrom(tensor)
    load_external_data_for_tensor(copy, str(folder))
    return copy


def _outside(tensor: Any, folder: Path) -> int:
    """Return how many of the tensor's bytes lie in another file."""
    said = {each.key: each.value for each in tensor.external_data}
    return int(said.get("length") or (folder / said["location"]).stat().st_size) if said else 0


def _free(name: str, taken: set[str]) -> str:
    """Return ``name``, longer where it is ``taken``; it is taken now."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _put(node: Any, packed: str, weight: _Weight) -> None:
    from onnx import helper

    (k, n), ends = weight.shape, ([node.input[0], packed], [node.output[0]])
    sizes = {"K": k, "N": n, "block_size": weight.block}
    node.CopyFrom(helper.make_node(OPERATOR, *ends, name=node.name, domain=DOMAIN, **sizes))


def _declare(value: Any, name: str, shape: list[int]) -> None:
    """Say in ``value`` what ONNX Runtime cannot work out for an operator that it does not know."""
    from onnx import TensorProto, helper

    said = value.type.tensor_type.elem_type or TensorProto.FLOAT
    value.CopyFrom(helper.make_tensor_value_info(name, said, shape))


def _placeholder(name: str) -> Any:
    """A constant in whose place the session is given the packed weight; no two are equal, so that none are merged."""
    from onnx import TensorProto

    content = name.encode()
    return TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(content)], raw_data=content)


def _shapes(model: Any) -> dict[str, list[int]]:
    """Return the shape of each tensor where it is known; an axis of unknown length is 0 long."""
    import onnx

    skeleton = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    skeleton.graph.node.extend(model.graph.node)
    skeleton.graph.input.extend(model.graph.input)
    skeleton.graph.output.extend(model.graph.output)
    skeleton.graph.name = model.graph.name
    for tensor in model.graph.initializer:
        kept = skeleton.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        if math.prod(tensor.dims) <= SHAPE_VALUES:
            kept.CopyFrom(tensor)
    graph = onnx.shape_inference.infer_shapes(skeleton).graph
    found = {}
    for value in (*graph.input, *graph.value_info):
        lengths = [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        if lengths:
            found[value.name] = lengths
    return found


def _is(node: Any, kind: str) -> bool:
    """Whether the node is ONNX's own operator ``kind`` of two inputs or more: other domains have such names too."""
    return node.op_type == kind and node.domain in ("", "ai.onnx") and len(node.input) > 1 and len(node.output) == 1


def _read(graph: Any) -> set[str]:
    """Return the names that the graph gives out, or that its nodes read, those of the graphs inside them too."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _read(inner)
    return names


def _drop(graph: Any, read: set[str]) -> None:
    """Drop what made the weights that are packed now: what was read before (``read``), and is read no more."""
    unread = read - _read(graph)
    for node in [each for each in graph.node if _is(each, "DequantizeLinear") and each.output[0] in unread]:
        graph.node.remove(node)
    unread = read - _read(graph)
    for tensor in [each for each in graph.initializer if each.name in unread]:
        graph.initializer.remove(tensor)


def _holds(path: Path, text: bytes) -> bool:
    """Whether the file holds ``text``: asked first, since loading a graph costs its size twice."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0
