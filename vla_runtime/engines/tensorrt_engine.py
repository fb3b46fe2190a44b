"""Runs a TensorRT plan on the GPU: static buffers bound once, one stream, a CUDA graph captured after warm-up.

Device memory, streams and graphs are CuPy's, so that pictures preprocessed there go in without leaving the device.
"""

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vla_runtime.engines.base import TensorSpec, check_inputs
from vla_runtime.engines.errors import (
    EngineDeviceLostError,
    EngineError,
    EngineMemoryError,
    EngineOutputError,
    EngineUnavailableError,
)
from vla_runtime.engines.plans import PlanKey, default_cache, require
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.engines.tensorrt_api import load_api

WARM_UP = 3


class TensorRtEngine:
    """One stage on the GPU. May be called from any thread: calls are serialised. Tensors may be NumPy or CuPy arrays.

    Outputs are CuPy arrays that the next call overwrites.
    """

    name = "tensorrt"

    def __init__(self, path: Path, stage: str, settings: EngineSettings):
        api = load_api(self.name)
        self.cupy = cupy = gpu_arrays(self.name)
        self.stage, self.array_module = stage, cupy
        self.version = f"{api.flavour} {api.version}"
        self._lock = threading.Lock()
        self._device = cupy.cuda.Device()
        key = PlanKey(stage, sha256_file(path), api.flavour, api.version, device_sm(cupy))
        plan = require(settings.cache_dir or default_cache(), key)
        try:
            self._logger = api.logger()
            self._runtime = runtime = api.trt.Runtime(self._logger)
            self._engine = engine = runtime.deserialize_cuda_engine(plan)
            if engine is None:
                raise EngineError(f"stage '{stage}': {self.version} cannot load its plan; run `vla build` again")
            self._context = context = engine.create_execution_context()
            if context is None:
                raise EngineMemoryError(f"stage '{stage}': not enough GPU memory for an execution context")
            self.inputs, self.outputs, self._buffers = {}, {}, {}
            for index in range(engine.num_io_tensors):
                self._bind(api.trt, engine.get_tensor_name(index))
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._graph = None
            self._warm_up(capture=not api.rtx)
        except Exception as error:
            raise self._named(error) from error

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the stage once; see ``Engine.run``."""
        check_inputs(self.stage, self.inputs, inputs)
        with self._lock, self._device:
            try:
                with self._stream:
                    for name, value in inputs.items():
                        self._fill(self._buffers[name], value)
                    self._launch()
                    # One flag for all outputs: the only thing that comes back to the host here.
                    finite = [self.cupy.isfinite(self._buffers[name]).all() for name in self._floats()]
                    sound = bool(self.cupy.stack(finite).all()) if finite else True
                self._stream.synchronize()
            except Exception as error:
                raise self._named(error) from error
        if not sound:
            bad = [name for name in self._floats() if not bool(self.cupy.isfinite(self._buffers[name]).all())]
            raise EngineOutputError(f"stage '{self.stage}': output {bad} has values that are not finite")
        return {name: self._buffers[name] for name in self.outputs}

    def _bind(self, trt: Any, name: str) -> None:
        engine, context = self._engine, self._context
        dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
        shape = tuple(engine.get_tensor_shape(name))
        if any(length < 0 for length in shape):
            raise EngineError(f"stage '{self.stage}': '{name}' has an open axis {shape}; export fixed shapes")
        spec = TensorSpec(shape, str(dtype))
        side = self.inputs if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT else self.outputs
        side[name] = spec
        self._buffers[name] = self.cupy.zeros(shape, dtype)
        if not context.set_tensor_address(name, self._buffers[name].data.ptr):
            raise EngineError(f"stage '{self.stage}': TensorRT refused the buffer of '{name}'")

    def _fill(self, buffer: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            buffer.set(np.ascontiguousarray(value), stream=self._stream)
        else:
            self.cupy.copyto(buffer, value)

    def _launch(self) -> None:
        if self._graph is not None:
            self._graph.launch(self._stream)
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        context = self._context
        if not context.execute_async_v3(self._stream.ptr):
            raise EngineError(f"stage '{self.stage}': TensorRT could not enqueue; its log says why")

    def _warm_up(self, capture: bool) -> None:
        """Run, then capture a CUDA graph and keep it only if it gives the same bits as the uncaptured run."""
        for _ in range(WARM_UP):
            self._enqueue()
        self._stream.synchronize()
        if not capture:
            return
        plain = {name: self._buffers[name].copy() for name in self.outputs}
        self._stream.begin_capture()
        self._enqueue()
        graph = self._stream.end_capture()
        graph.launch(self._stream)
        self._stream.synchronize()
        same = all(bool((plain[name].view("uint8") == self._buffers[name].view("uint8")).all()) for name in plain)
        self._graph = graph if same else None

    def _floats(self) -> list[str]:
        return [name for name, spec in self.outputs.items() if spec.dtype.startswith("float")]

    def _named(self, error: Exception) -> Exception:
        """Turn CuPy's errors into ours; what is ours already stays."""
        if isinstance(error, EngineError):
            return error
        text = f"stage '{self.stage}': {error}"
        if isinstance(error, self.cupy.cuda.memory.OutOfMemoryError):
            return EngineMemoryError(f"{text}; close what else uses the GPU, or use INT4 weights")
        if isinstance(error, self.cupy.cuda.runtime.CUDARuntimeError):
            return EngineDeviceLostError(f"{text}; this process cannot use the GPU any more: restart the policy node")
        return EngineError(text)


class TensorRtRtxEngine(TensorRtEngine):
    """The same on a desktop card, with TensorRT-RTX; its plans can be built without a GPU."""

    name = "tensorrt_rtx"


def gpu_arrays(engine: str) -> Any:
    """Import CuPy and look for a device; EngineUnavailableError saying which of the two is missing."""
    try:
        import cupy
    except ImportError as error:
        raise EngineUnavailableError(
            f"engine {engine}: {error}; install CuPy: pip install cupy-cuda12x (or 13x)"
        ) from None
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return cupy
        reason = "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = str(error)
    raise EngineUnavailableError(f"engine {engine}: {reason}; use --engine onnxruntime on this machine")


def device_sm(cupy: Any) -> int:
    """Compute capability of the current device: 87 for 8.7."""
    return int(cupy.cuda.Device().compute_capability)


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
