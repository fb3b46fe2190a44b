"""What may be chosen about an engine, the same for all of them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EngineSettings:
    """Settings of one engine.

    ``threads``: CPU threads of one stage; one by default, because robots share the CPU with control.
    ``device``: 'cpu', 'cuda' or 'tensorrt' (execution providers of ONNX Runtime; other engines know their own device).
    ``exact``: full-precision activations where the engine would round them (reference runs of parity).
    ``cache_dir``: where built engines are kept, for engines that build; None: ~/.cache/vla_runtime/engines.
    ``optimised_path``: write the graph as the engine optimised it to this file, for inspection.
    """

    threads: int = 1
    device: str = "cpu"
    exact: bool = False
    cache_dir: Path | None = None
    optimised_path: Path | None = None
