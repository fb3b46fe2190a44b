"""A stage in float16: half the bytes, and what a GPU's tensor cores compute in. Inputs and outputs stay float32."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.rewrite import sort_nodes

LARGEST = float(np.finfo(np.float16).max)


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``model`` with weights and arithmetic in float16, between casts at its inputs and outputs.

    Raises UserError naming a weight that float16 cannot hold: it would become infinite, or a wrong number.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    for tensor in model.graph.initializer:
        # Masks are written as the lowest float there is; those are clipped, and mask as before.
        if tensor.data_type == TensorProto.FLOAT and tensor.dims:
            peak = float(np.abs(numpy_helper.to_array(tensor)).max(initial=0.0))
            if LARGEST < peak < 1e30:
                raise UserError(f"weight '{tensor.name}' reaches {peak:.3g}; float16 ends at {LARGEST:.0f}")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    made = convert_float_to_float16(copy, keep_io_types=True)
    sort_nodes(made.graph)
    return made
