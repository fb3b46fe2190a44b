"""Makes one product of the linears that read the same tensor: queries, keys and values, or a gate and its partner.

x @ [A B] = [x @ A, x @ B]: every output is the same sum as before. With fewer and larger products the input is read,
and rounded where the engine rounds it, once, and threads wait for each other once.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.toolchain.quantize.int4 import pack
from vla_runtime.toolchain.quantize.rewrite import tidy

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True)
class Product:
    """MatMul(x, weight), and the bias that is added where there is one.

    ``form``: what the members of one product must share; ``dequantize``: the node that makes the weight of INT4.
    """

    node: onnx.NodeProto
    weight: onnx.TensorProto
    dequantize: onnx.NodeProto | None
    add: onnx.NodeProto | None
    bias: onnx.TensorProto | None
    form: tuple

    @property
    def output(self) -> str:
        """The tensor that others read."""
        return (self.node if self.add is None else self.add).output[0]


def merge_linears(model: onnx.ModelProto) -> int:
    """Merge in place; return how many products are left where several were, 0 if there was nothing to merge."""
    graph = model.graph
    groups = [group for group in _groups(graph).values() if len(group) > 1]
    for group in groups:
        _merge(graph, group)
    if groups:
        tidy(model)
    return len(groups)


def _groups(graph: onnx.GraphProto) -> dict[tuple, list[Product]]:
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    for value in graph.output:
        readers[value.name].append(None)
    groups = defaultdict(list)
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] != node.input[0] and len(readers[node.input[1]]) == 1:
            product = _product(node, constants, makers, readers)
            if product is not None:
                groups[node.input[0], product.form].append(product)
    return groups


def _product(node: onnx.NodeProto, constants: dict, makers: dict, readers: dict) -> Product | None:
    dequantize = makers.get(node.input[1])
    if dequantize is None:
        weight, kind = constants.get(node.input[1]), ()
        if weight is None or weight.data_type not in FLOATS:
            return None
    elif dequantize.op_type == "DequantizeLinear" and len(dequantize.input) == 2:
        weight, scale = (constants.get(name) for name in dequantize.input)
        options = {each.name: helper.get_attribute_value(each) for each in dequantize.attribute}
        if weight is None or scale is None or weight.data_type != TensorProto.INT4 or options.get("axis") != 0:
            return None
        kind = (options.get("block_size", 0), scale.data_type)
    else:
        return None
    if len(weight.dims) != 2:
        return None
    add = readers[node.output[0]][0] if len(readers[node.output[0]]) == 1 else None
    bias = None
    if add is not None and add.op_type == "Add":
        bias = next((constants[name] for name in add.input if name in constants), None)
    if bias is None or list(bias.dims) != [weight.dims[1]]:
        add = bias = None
    form = (weight.dims[0], weight.data_type, kind, None if bias is None else bias.data_type)
    return Product(node, weight, dequantize, add, bias, form)


def _merge(graph: onnx.GraphProto, group: list[Product]) -> None:
    first, name = group[0], f"{group[0].output}.merged"
    constants = {tensor.name: tensor for tensor in graph.initializer}
    weight = _weight(graph, group, name, constants)
    product = name if first.bias is None else f"{name}.product"
    graph.node.append(helper.make_node("MatMul", [first.node.input[0], weight], [product], name=product))
    if first.bias is not None:
        bias = np.concatenate([numpy_helper.to_array(each.bias) for each in group])
        graph.initializer.append(numpy_helper.from_array(bias, f"{name}.bias"))
        graph.node.append(helper.make_node("Add", [product, f"{name}.bias"], [name], name=name))
    sizes = np.array([each.weight.dims[1] for each in group], np.int64)
    graph.initializer.append(numpy_helper.from_array(sizes, f"{name}.sizes"))
    outputs = [each.output for each in group]
    graph.node.append(helper.make_node("Split", [name, f"{name}.sizes"], outputs, name=f"{name}.split", axis=-1))
    for each in group:
        for node in (each.node, each.dequantize, each.add):
            if node is not None:
                graph.node.remove(node)


def _weight(graph: onnx.GraphProto, group: list[Product], name: str, constants: dict) -> str:
    """Put the weights side by side; return the name of the float tensor."""
    first = group[0]
    if first.dequantize is None:
        together = np.concatenate([numpy_helper.to_array(each.weight) for each in group], axis=1)
        graph.initializer.append(numpy_helper.from_array(together, f"{name}.weight"))
        return f"{name}.weight"
    q = np.concatenate([numpy_helper.to_array(each.weight).astype(np.int8) for each in group], axis=1)
    scales = [numpy_helper.to_array(constants[each.dequantize.input[1]]) for each in group]
    graph.initializer.append(helper.make_tensor(f"{name}.int4", TensorProto.INT4, q.shape, pack(q), raw=True))
    graph.initializer.append(numpy_helper.from_array(np.concatenate(scales, axis=1), f"{name}.scale"))
    node = helper.make_node(
        "DequantizeLinear", [f"{name}.int4", f"{name}.scale"], [f"{name}.float"], name=f"{name}.float"
    )
    node.attribute.extend(first.dequantize.attribute)
    graph.node.append(node)
    return f"{name}.float"
