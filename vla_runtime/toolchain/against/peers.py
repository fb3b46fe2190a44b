"""The peers of `vla bench policy --against` by name; another one is a function and a line.

Such a function finds its peer (UserError where it is not installed) and returns what measures it, so that nobody waits
for a bench to learn that something is missing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vla_runtime.paths import share


@dataclass(frozen=True)
class Ask:
    """``home``: where the peer is installed (None: where `make` puts it); ``rounds``, ``threads``: as for the bench."""

    home: Path | None
    threads: int
    rounds: int


def llama_cpp(ask: Ask) -> Callable[[], dict]:
    """A decode step of Llama-shaped INT4 layers, 2048 and 4096 wide, on llama.cpp's ggml and on our engine."""
    from vla_runtime.toolchain.against.decode import measure
    from vla_runtime.toolchain.against.ggml import Ggml
    from vla_runtime.toolchain.against.llama_layer import INNER, make_layer

    ggml = Ggml(ask.home or share(".venv-llamacpp", "lib"))
    # llama.cpp takes the first of the processor's forms that a weight fits; the others are there to be seen.
    forms = list(ggml.weight_buffers()) or [None]
    peers = [_contender(ggml, form, ask.threads) for form in forms]

    def figures() -> dict:
        return {
            str(hidden): measure(
                make_layer(hidden, inner), peers, threads=ask.threads, rounds=ask.rounds, progress=_say
            )
            for hidden, inner in INNER.items()
        }

    return figures


def _contender(ggml, buffer: str | None, threads: int):
    from vla_runtime.toolchain.against.decode import Contender
    from vla_runtime.toolchain.against.ggml import BITS, GgmlDecode

    return Contender(buffer or "plain", BITS, lambda layer, layers: GgmlDecode(ggml, layer, layers, threads, buffer))


PEERS: dict[str, Callable[[Ask], Callable[[], dict]]] = {"llama.cpp": llama_cpp}


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
