"""OpenVINO: optional, x86; faster than ONNX Runtime on the same file at prefill and flow-step shapes."""

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vla_runtime.engines.base import TensorSpec, check_inputs, check_outputs
from vla_runtime.engines.errors import EngineError, EngineUnavailableError
from vla_runtime.engines.settings import EngineSettings

# Left to itself, OpenVINO computes in bf16 where the processor has it: right where many tokens share a weight (AMX).
# One token reads every weight once, and the 8-bit kernels that are made for that run only under f32. They round
# activations in groups; 128 is the group of our weights (ONNX Runtime rounds so too) and a tenth faster than its 32.
INT4_DECODE = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 128}
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
# What stands between a stored 4-bit weight and the product that reads it.
DEQUANTISING = {"Convert", "Multiply", "Reshape", "Subtract", "Transpose"}


class OpenVinoEngine:
    """Runs one ONNX stage. May be called from any thread; calls are serialised."""

    name = "openvino"
    array_module = np

    def __init__(self, path: Path, stage: str, settings: EngineSettings):
        try:
            import openvino
        except ImportError as error:
            raise EngineUnavailableError(f"engine openvino: {error}; install it with `pip install openvino`") from None
        self.stage = stage
        self.version = f"openvino {openvino.__version__}"
        self._lock = threading.Lock()
        options = {"INFERENCE_NUM_THREADS": settings.threads, "PERFORMANCE_HINT": "LATENCY"}
        core = openvino.Core()
        try:
            model = core.read_model(str(path))
        except Exception as error:  # openvino raises plain RuntimeError for files it cannot read
            raise EngineError(f"stage '{stage}': openvino cannot load {path}: {error}") from error
        # Names as the file has them: the compiled model adds those of tensors that it found to be the same.
        self.inputs = {port.get_any_name(): self._spec(port) for port in model.inputs}
        self.outputs = {port.get_any_name(): self._spec(port) for port in model.outputs}
        if settings.exact:
            options |= EXACT
        elif is_int4_decode(model):
            options |= INT4_DECODE
        try:
            self._request = core.compile_model(model, "CPU", options).create_infer_request()
        except Exception as error:
            raise EngineError(f"stage '{stage}': openvino cannot compile {path}: {error}") from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the stage once; see ``Engine.run``."""
        check_inputs(self.stage, self.inputs, inputs)
        with self._lock:
            try:
                results = self._request.infer(dict(inputs))
            except Exception as error:
                raise EngineError(f"stage '{self.stage}': openvino failed: {error}") from error
            # The request's buffers are written again by the next call.
            outputs = {name: np.array(results[name]) for name in self.outputs}
        check_outputs(self.stage, self.outputs, outputs)
        return outputs

    def _spec(self, port) -> TensorSpec:
        if port.partial_shape.is_dynamic:
            raise EngineError(f"stage '{self.stage}': '{port.get_any_name()}' has an open axis; export fixed shapes")
        return TensorSpec(tuple(port.shape), str(np.dtype(port.element_type.to_dtype())))


def is_int4_decode(model) -> bool:
    """Whether a stage (``openvino.Model``) runs one token through INT4 weights: all products with them have one row.

    The graph says so itself, whatever the stage is called: products with other weights (a sliced head) do not count.
    """
    products = [node for node in model.get_ops() if node.get_type_name() == "MatMul"]
    shapes = [node.get_output_partial_shape(0) for node in products if _reads_int4(node)]
    return bool(shapes) and all(length == 1 for shape in shapes for length in list(shape)[:-1])


def _reads_int4(product) -> bool:
    node = product.input_value(1).get_node()
    while node.get_type_name() in DEQUANTISING:
        node = node.input_value(0).get_node()
    return node.get_type_name() == "Constant" and node.get_element_type().get_type_name() in ("i4", "u4")
