"""Counts the bytes of weights in an ONNX file."""

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

_SUB_BYTE = {TensorProto.INT4: 4, TensorProto.UINT4: 4}


def weight_bytes(path: Path) -> int:
    """Bytes of the initialisers of an ONNX file as stored: 4-bit weights count half a byte each."""
    model = onnx.load(str(path), load_external_data=False)
    return sum(tensor_bytes(tensor) for tensor in model.graph.initializer)


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of one initialiser, wherever its data is kept."""
    count = math.prod(tensor.dims)
    if tensor.data_type in _SUB_BYTE:
        return (count * _SUB_BYTE[tensor.data_type] + 7) // 8
    return count * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
