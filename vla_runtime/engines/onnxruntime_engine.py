"""ONNX Runtime: the default without a GPU. It fuses the INT4 form that `vla quantize` writes into one kernel.

Where one row meets such weights, our own operator takes its place (engines/int4/).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vla_runtime.engines.base import TensorSpec, check_inputs, check_outputs
from vla_runtime.engines.errors import EngineError, EngineMemoryError, EngineUnavailableError
from vla_runtime.engines.int4.graph import replace_products
from vla_runtime.engines.int4.library import find_library
from vla_runtime.engines.settings import EngineSettings

DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}
PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}


class OnnxRuntimeEngine:
    """Runs one ONNX stage. May be called from any thread, one call at a time."""

    name = "onnxruntime"
    array_module = np

    def __init__(self, path: Path, stage: str, settings: EngineSettings):
        try:
            import onnxruntime
        except ImportError as error:
            raise EngineUnavailableError(
                f"engine onnxruntime: {error}; install it with `pip install onnxruntime`"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Spinning worker threads would take the core that the control loop needs between two inferences.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if settings.exact:
            # Unoptimised graphs dequantise INT4 into fp32 and multiply in fp32: slow, and exact.
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if settings.optimised_path is not None:
            options.optimized_model_filepath = str(settings.optimised_path)
        wanted = PROVIDERS[settings.device]
        if wanted[0] not in onnxruntime.get_available_providers():
            raise EngineUnavailableError(
                f"engine onnxruntime: {wanted[0]} is not in this build of onnxruntime "
                f"(it has {onnxruntime.get_available_providers()}); install onnxruntime-gpu, or use device 'cpu'"
            )
        self.stage = stage
        self.path = Path(path)
        try:
            model = self._with_own_products(options, settings) or str(path)
            self._session = onnxruntime.InferenceSession(model, options, providers=wanted)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            raise EngineError(f"stage '{stage}': onnxruntime cannot load {path}: {error}") from error
        self._session._model_bytes = None  # it would keep a second copy of every constant that is not packed
        self.version = f"onnxruntime {onnxruntime.__version__}" + (", own INT4 product" if self._weights else "")
        self.inputs = {value.name: _spec(value, stage) for value in self._session.get_inputs()}
        self.outputs = {value.name: _spec(value, stage) for value in self._session.get_outputs()}
        self._names = list(self.outputs)

    def _with_own_products(self, options, settings: EngineSettings) -> bytes | None:
        """Return the graph with our product where a token meets INT4 weights; None: the file is run as it is."""
        self._weights = {}
        library = None if settings.exact or settings.device != "cpu" else find_library()
        replaced = replace_products(self.path, library) if library else None
        if replaced is None:
            return None
        from onnxruntime import OrtValue

        options.register_custom_ops_library(str(library.path))
        # The session reads the arrays where they are: they and what holds them have to live as long as it does.
        # Given as "external initializers" they would be copied.
        for name, array in replaced.weights.items():
            self._weights[name] = OrtValue.ortvalue_from_numpy(array), array
            options.add_initializer(name, self._weights[name][0])
        return replaced.model

    @property
    def packed_weights(self) -> dict[str, np.ndarray]:
        """The weights of our own products, uint8, by their initialisers' names: the graph has placeholders for them."""
        return {name: array for name, (_, array) in self._weights.items()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the stage once; see ``Engine.run``."""
        check_inputs(self.stage, self.inputs, inputs)
        try:
            values = self._session.run(self._names, dict(inputs))
        except Exception as error:
            text = str(error)
            if "allocate" in text.lower() or "out of memory" in text.lower():
                raise EngineMemoryError(f"stage '{self.stage}': out of memory: {text}") from error
            raise EngineError(f"stage '{self.stage}': onnxruntime failed: {text}") from error
        outputs = dict(zip(self._names, values))
        check_outputs(self.stage, self.outputs, outputs)
        return outputs


def _spec(value, stage: str) -> TensorSpec:
    if value.type not in DTYPES:
        raise EngineError(f"stage '{stage}': tensor '{value.name}' has the type {value.type}, which is not supported")
    loose = [dim for dim in value.shape if not isinstance(dim, int)]
    if loose:
        raise EngineError(f"stage '{stage}': tensor '{value.name}' has axes without a fixed length: {loose}")
    return TensorSpec(tuple(value.shape), DTYPES[value.type])
