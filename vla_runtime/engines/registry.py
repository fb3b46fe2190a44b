"""Engines by name. A new engine is one file and one line here."""

import importlib
from pathlib import Path

from vla_runtime.engines.base import Engine
from vla_runtime.engines.errors import UnknownEngineError
from vla_runtime.engines.settings import EngineSettings

# name: (module, class); imported only when asked for, since each brings a heavy package
ENGINES: dict[str, tuple[str, str]] = {
    "onnxruntime": ("vla_runtime.engines.onnxruntime_engine", "OnnxRuntimeEngine"),
    "openvino": ("vla_runtime.engines.openvino_engine", "OpenVinoEngine"),
    "tensorrt": ("vla_runtime.engines.tensorrt_engine", "TensorRtEngine"),
    "tensorrt_rtx": ("vla_runtime.engines.tensorrt_engine", "TensorRtRtxEngine"),
}
AUTO = "onnxruntime"


def resolve(name: str) -> str:
    """Return the engine that ``name`` stands for ('auto': the default here); UnknownEngineError when there is none."""
    chosen = AUTO if name == "auto" else name
    if chosen not in ENGINES:
        raise UnknownEngineError(f"engine '{name}' is unknown; choose one of {['auto', *ENGINES]}")
    return chosen


def make_engine(name: str, path: Path, stage: str, settings: EngineSettings | None = None) -> Engine:
    """Load the ONNX file ``path`` as stage ``stage`` with engine ``name``.

    Raises EngineUnavailableError when the engine cannot run on this machine, EngineError when it cannot load the file.
    """
    module, attribute = ENGINES[resolve(name)]
    return getattr(importlib.import_module(module), attribute)(Path(path), stage, settings or EngineSettings())
