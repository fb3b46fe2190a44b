"""The peers of `vla bench policy --against` by name; another one is a function and a line.

Such a function finds its peer (UserError where it is not installed) and returns what measures it, so that nobody waits
for a bench to learn that something is missing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vla_runtime.errors import UsageError
from vla_runtime.paths import share
from vla_runtime.policy.bundle import Bundle


@dataclass(frozen=True)
class Ask:
    """``home``: where the peer is installed (None: where `make` puts it); ``rounds``, ``threads``: as for the bench.

    ``engine``: ours, by its name. ``bundle``, ``checkpoint`` (what the bundle was exported from): for peers that run a
    whole policy.
    """

    home: Path | None
    threads: int
    rounds: int
    bundle: Bundle | None = None
    engine: str = "auto"
    checkpoint: Path | None = None


def llama_cpp(ask: Ask) -> Callable[[], dict]:
    """A decode step of Llama-shaped INT4 layers, 2048 and 4096 wide, on llama.cpp's ggml and on ``engine``."""
    from vla_runtime.toolchain.against.decode import LEAST_BYTES, measure
    from vla_runtime.toolchain.against.ggml import Ggml
    from vla_runtime.toolchain.against.llama_layer import INNER, make_layers

    ggml = Ggml(ask.home or share(".venv-llamacpp", "lib"))
    # llama.cpp takes the first of the processor's forms that a weight fits; the others are there to be seen.
    forms = list(ggml.weight_buffers()) or [None]
    peers = [_contender(ggml, form, ask.threads) for form in forms]

    def figures() -> dict:
        return {
            str(hidden): measure(
                make_layers(hidden, inner, LEAST_BYTES),
                peers,
                engine=ask.engine,
                threads=ask.threads,
                rounds=ask.rounds,
                progress=_say,
            )
            for hidden, inner in INNER.items()
        }

    return figures


def _contender(ggml, buffer: str | None, threads: int):
    from vla_runtime.toolchain.against.decode import Contender
    from vla_runtime.toolchain.against.ggml import BITS, GgmlDecode

    return Contender(buffer or "plain", BITS, lambda layers: GgmlDecode(ggml, layers, threads, buffer))


def lerobot(ask: Ask) -> Callable[[], dict]:
    """A whole inference, pictures to actions, on LeRobot's own PyTorch in fp32 and bf16, and on our engines."""
    from vla_runtime.engines.registry import resolve
    from vla_runtime.toolchain.against.lerobot import check, compare

    if ask.bundle is None or ask.checkpoint is None:
        raise UsageError("--against lerobot needs --checkpoint DIR: the directory that the bundle was exported from")
    python = (ask.home or share(".venv-peers")) / "bin/python"
    check(ask.bundle, ask.checkpoint, python)
    # The default engine in fp32 shows that both compute the same; the engine asked for may round more.
    engines = list(dict.fromkeys([resolve("auto"), resolve(ask.engine)]))
    return lambda: compare(
        [(ask.bundle, engine) for engine in engines],
        ask.checkpoint,
        threads=ask.threads,
        rounds=ask.rounds,
        python=python,
        progress=lambda done, total: _say(f"lerobot: round {done} of {total}"),
    )


PEERS: dict[str, Callable[[Ask], Callable[[], dict]]] = {"lerobot": lerobot, "llama.cpp": llama_cpp}


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
