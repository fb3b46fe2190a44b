"""TensorRT 10.3 (JetPack 6), 10.16 (JetPack 7.2), 11.x and TensorRT-RTX: what differs between them, in one place.

Networks are always strongly typed: the ONNX file's own types decide the precision. 10.x needs a flag for that, 11 has
no other kind and keeps the flag as one that it ignores; its bit moved, so numbers are never written out.
`test/engines` holds every name used here and in the other tensorrt_*.py to those versions' own bindings.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from vla_runtime.engines.errors import EngineUnavailableError

HINTS = {
    "tensorrt": "on a Jetson it comes with JetPack (use a virtual environment with --system-site-packages); "
    "elsewhere: pip install tensorrt",
    "tensorrt_rtx": "pip install tensorrt-rtx-cu13",
}


@dataclass(frozen=True)
class TensorRtApi:
    """One installed flavour. ``trt`` is its module; ``flavour``: 'tensorrt' or 'tensorrt_rtx'."""

    flavour: str
    trt: Any

    @property
    def version(self) -> str:
        """The version that a plan belongs to."""
        return str(self.trt.__version__)

    @property
    def rtx(self) -> bool:
        """Whether plans can be built ahead of time, without a GPU, for named compute capabilities."""
        return self.flavour == "tensorrt_rtx"

    def logger(self) -> Any:
        """Return a logger that says errors and warnings only."""
        return self.trt.Logger(self.trt.Logger.WARNING)

    def network_flags(self) -> int:
        """Flags of a strongly typed network, with an explicit batch (the only kind since 10)."""
        return 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def capability(self, sm: int) -> Any:
        """The builder's name of compute capability ``sm`` (86 for 8.6); only TensorRT-RTX has them."""
        names = self.trt.ComputeCapability.__members__
        if f"SM{sm}" not in names:
            known = sorted(name for name in names if name.startswith("SM"))
            raise EngineUnavailableError(f"{self.flavour} {self.version} does not build for SM {sm}; it knows {known}")
        return names[f"SM{sm}"]


def load_api(flavour: str) -> TensorRtApi:
    """Import a flavour; EngineUnavailableError with the command that installs it."""
    try:
        trt = importlib.import_module(flavour)
    except (ImportError, OSError) as error:
        raise EngineUnavailableError(f"engine {flavour}: not installed here ({error}); {HINTS[flavour]}") from None
    major = int(trt.__version__.split(".")[0])
    if flavour == "tensorrt" and major < 10:
        raise EngineUnavailableError(f"engine tensorrt: version {trt.__version__} is too old; 10.3 or later is needed")
    return TensorRtApi(flavour, trt)
