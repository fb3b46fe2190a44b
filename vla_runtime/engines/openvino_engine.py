"""OpenVINO: optional, x86; faster than ONNX Runtime on the same file at prefill and flow-step shapes."""

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vla_runtime.engines.base import TensorSpec, check_inputs, check_outputs
from vla_runtime.engines.errors import EngineError, EngineUnavailableError
from vla_runtime.engines.settings import EngineSettings


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
        if settings.exact:
            options |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
        try:
            core = openvino.Core()
            compiled = core.compile_model(str(path), "CPU", options)
        except Exception as error:  # openvino raises plain RuntimeError for files it cannot read
            raise EngineError(f"stage '{stage}': openvino cannot load {path}: {error}") from error
        self._request = compiled.create_infer_request()
        self.inputs = {port.get_any_name(): self._spec(port) for port in compiled.inputs}
        self.outputs = {port.get_any_name(): self._spec(port) for port in compiled.outputs}

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
