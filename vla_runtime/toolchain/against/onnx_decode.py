"""The decode step as this package runs it: an ONNX file in the form that `vla export` and `vla quantize` write."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.engines.registry import make_engine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.toolchain.against.llama_layer import EPSILON, GROUP, Int4Linear, Layer
from vla_runtime.toolchain.export.merge import merge_linears
from vla_runtime.toolchain.quantize.int4 import pack
from vla_runtime.toolchain.quantize.rewrite import OPSET


class OnnxDecode:
    """Layers as one graph on ``engine`` (a name of the registry); ``step`` runs them on one token.

    The file stays in ``folder``, which has to live as long as this does: an engine may map it.
    """

    def __init__(self, layers: Sequence[Layer], threads: int, folder: Path, engine: str = "auto"):
        path = folder / "decode.onnx"
        model = decode_model(layers)
        merge_linears(model)
        onnx.save(model, str(path))
        del model
        self._engine = make_engine(engine, path, "decode", EngineSettings(threads=threads))
        self._shape = (1, 1, layers[0].hidden)
        self.name = self._engine.version

    def step(self, x: np.ndarray) -> np.ndarray:
        """Return the layers' output (hidden,) for ``x`` (hidden,) float32."""
        return self._engine.run({"x": x.reshape(self._shape)})["y"].reshape(-1)


def decode_model(layers: Sequence[Layer]) -> onnx.ModelProto:
    """Return the graph: x (1, 1, hidden) to y of the same shape."""
    build = _Builder()
    x = "x"
    for index, layer in enumerate(layers):
        x = build.layer(layer, f"l{index}", x)
    build.node("Identity", [x], "y")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, layers[0].hidden]) for name in ("x", "y")]
    graph = helper.make_graph(build.nodes, "decode", value[:1], value[1:], build.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


class _Builder:
    def __init__(self):
        self.nodes: list[onnx.NodeProto] = []
        self.constants = [
            numpy_helper.from_array(np.float32(2), "two"),
            numpy_helper.from_array(np.float32(EPSILON), "epsilon"),
            numpy_helper.from_array(np.array([-1], np.int64), "last"),
        ]

    def node(self, kind: str, inputs: list[str], output: str, **attributes) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def layer(self, layer: Layer, at: str, x: str) -> str:
        linears = layer.linears
        n = self._norm(f"{at}.n", x, layer.hidden)
        q, k, v = (self._linear(f"{at}.{name}", n, linears[name]) for name in "qkv")
        mixed = self.node("Add", [self.node("Add", [q, k], f"{at}.qk"), v], f"{at}.qkv")
        y = self.node("Add", [x, self._linear(f"{at}.o", mixed, linears["o"])], f"{at}.y")
        m = self._norm(f"{at}.m", y, layer.hidden)
        gate, up = (self._linear(f"{at}.{name}", m, linears[name]) for name in ("gate", "up"))
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        inner = self.node("Mul", [silu, up], f"{at}.inner")
        return self.node("Add", [y, self._linear(f"{at}.down", inner, linears["down"])], f"{at}.z")

    def _norm(self, at: str, x: str, hidden: int) -> str:
        self.constants.append(numpy_helper.from_array(np.ones(hidden, np.float32), f"{at}.weight"))
        mean = self.node("ReduceMean", [self.node("Pow", [x, "two"], f"{at}.square"), "last"], f"{at}.mean", keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, "epsilon"], f"{at}.add")], f"{at}.root")
        return self.node("Mul", [self.node("Div", [x, root], f"{at}.div"), f"{at}.weight"], f"{at}.norm")

    def _linear(self, at: str, x: str, linear: Int4Linear) -> str:
        values = helper.make_tensor(f"{at}.int4", TensorProto.INT4, linear.q.shape, pack(linear.q), raw=True)
        self.constants += [values, numpy_helper.from_array(linear.scales, f"{at}.scale")]
        names = [f"{at}.int4", f"{at}.scale"]
        weight = self.node("DequantizeLinear", names, f"{at}.weight", axis=0, block_size=GROUP)
        return self.node("MatMul", [x, weight], f"{at}.out")
