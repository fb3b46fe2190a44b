"""One token through Llama-shaped INT4 layers: our engine, a peer, and plain reading of memory, in turn."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.toolchain.against.llama_layer import BLOCK_BITS, Layer, exact_step
from vla_runtime.toolchain.against.onnx_decode import OnnxDecode
from vla_runtime.toolchain.bandwidth import MemoryReader

# Far more than caches hold, so that every step reads its weights from memory. (Servers share 300 MB of them.)
LEAST_BYTES = 400 << 20
# Both engines round activations to 8 bits, so neither equals float32; a wrong layout is nowhere near.
LEAST_COSINE = 0.999
# Threads that wait for work by spinning go to sleep within this time: they must not take a core from the next engine.
PAUSE_S = 0.2


def clock_of(threads: int) -> Callable[[], float]:
    """Return what times a step: the wall for several threads, the processor's time for one.

    The processor's time leaves out what other processes take from a busy machine; with several threads it would also
    leave out their waiting for each other.
    """
    return time.process_time if threads == 1 else time.perf_counter


class Decoder(Protocol):
    """An engine with the layers' weights in its own form."""

    name: str

    def step(self, x: np.ndarray) -> np.ndarray:
        """Return the layers' output (hidden,) for ``x`` (hidden,) float32."""


@dataclass(frozen=True)
class Contender:
    """``make(layers)`` gives the engine; ``bits``: of one weight in its form, scales included."""

    label: str
    bits: float
    make: Callable[[Sequence[Layer]], Decoder]


def ours(threads: int, folder: Path, engine: str = "auto") -> Contender:
    """Return this package's ``engine``; ``folder``: for its ONNX file, which lives as long as the engine does."""
    return Contender("ours", BLOCK_BITS, lambda layers: OnnxDecode(layers, threads, folder, engine))


def compare_decode(
    layers: Sequence[Layer],
    contenders: Sequence[Contender],
    *,
    threads: int,
    rounds: int,
    pause_s: float = PAUSE_S,
    progress: Callable[[str], None] = lambda text: None,
) -> dict:
    """Time a step of each contender and one reading of as many bytes, in turn, ``rounds`` times.

    Times are ms of a single layer. ``share_of_read``: the bytes of the contender's form by its time, over the bandwidth
    of the readings; ``best``: from the shortest times of the run; ``p50``: the median over rounds, each with its own
    reading, so that what the rest of the machine takes weighs on both. Raises UserError when a contender computes
    something else than the layers do.
    """
    hidden, size = layers[0].hidden, sum(layer.weight_bytes for layer in layers)
    x = np.random.default_rng(1).standard_normal(hidden).astype(np.float32)
    wanted = exact_step(layers, x)
    engines, cosines = [], []
    for contender in contenders:
        progress(f"{contender.label}: {len(layers)} layers of {hidden}")
        engines.append(contender.make(layers))
        cosines.append(_cosine(engines[-1].step(x), wanted))
        if not cosines[-1] >= LEAST_COSINE:
            raise UserError(
                f"{engines[-1].name} computes something else: cosine {cosines[-1]:.4f} with float32, "
                f"at least {LEAST_COSINE} is rounding"
            )
    clock = clock_of(threads)
    reader = MemoryReader(threads, size, clock)
    reads, times = [], [[] for _ in engines]
    try:
        for done in range(rounds + 1):  # the first round warms up
            time.sleep(pause_s)
            read = reader.seconds()
            spent = [_timed(engine, x, clock, pause_s) for engine in engines]
            if done:
                reads.append(read)
                for kept, seconds in zip(times, spent):
                    kept.append(seconds)
    finally:
        reader.close()
        for engine in engines:
            getattr(engine, "close", lambda: None)()
    bandwidths = reader.size / np.array(reads)
    result = {
        "hidden": hidden,
        "layers": len(layers),
        "threads": threads,
        "clock": "processor" if threads == 1 else "wall",
        "rounds": rounds,
        "read_gb_s": {"p50": float(np.median(bandwidths)) / 1e9, "best": float(bandwidths.max()) / 1e9},
    }
    for contender, engine, seconds, cosine in zip(contenders, engines, times, cosines):
        figures = _figures(np.array(seconds), len(layers), size * contender.bits / 4, bandwidths)
        result[contender.label] = {"engine": engine.name, "cosine": cosine, **figures}
    first = np.array(times[0])
    result["time_ratio"] = {
        contender.label: {"p50": float(np.median(first / seconds)), "best": float(first.min() / min(seconds))}
        for contender, seconds in zip(contenders[1:], times[1:])
    }
    return result


def measure(
    layers: Sequence[Layer],
    peers: Sequence[Contender],
    *,
    engine: str,
    threads: int,
    rounds: int,
    progress: Callable[[str], None],
) -> dict:
    """Compare this package's ``engine`` with ``peers``."""
    with tempfile.TemporaryDirectory() as folder:
        contenders = [ours(threads, Path(folder), engine), *peers]
        return compare_decode(layers, contenders, threads=threads, rounds=rounds, progress=progress)


def _figures(seconds: np.ndarray, layers: int, size: float, bandwidths: np.ndarray) -> dict:
    rates = size / seconds
    p50, p99 = (float(np.percentile(seconds, q)) for q in (50, 99))
    return {
        "bytes": int(size / layers),
        "p50_ms": p50 / layers * 1e3,
        "p99_ms": p99 / layers * 1e3,
        "best_ms": float(seconds.min()) / layers * 1e3,
        "share_of_read": {
            "p50": float(np.median(rates / bandwidths)),
            "best": float(rates.max() / bandwidths.max()),
        },
    }


def _timed(engine: Decoder, x: np.ndarray, clock: Callable[[], float], pause_s: float) -> float:
    time.sleep(pause_s)
    start = clock()
    engine.step(x)
    return clock() - start


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
