"""Checks that ONNX Runtime fuses INT4 weights: an unfused layout is some hundred times slower."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto


@dataclass(frozen=True)
class Fusion:
    """After ONNX Runtime's optimisation: 4-bit kernels, and INT4 weights that are still dequantised at every call."""

    fused: int
    unfused: int


def inspect_fusion(path: Path) -> Fusion:
    """Load ``path`` as a session would, and count what its optimiser made of the INT4 weights."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(target)
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # it warns that an optimised file belongs to this machine: it is deleted at once
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(str(target), load_external_data=False)
    kinds = {tensor.name: tensor.data_type for tensor in optimised.graph.initializer}
    nodes = optimised.graph.node
    fused = sum(node.op_type == "MatMulNBits" for node in nodes)
    unfused = sum(
        node.op_type == "DequantizeLinear" and kinds.get(node.input[0]) in (TensorProto.INT4, TensorProto.UINT4)
        for node in nodes
    )
    return Fusion(fused, unfused)
