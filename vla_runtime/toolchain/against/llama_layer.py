"""The linears of a Llama-shaped decoder layer with INT4 weights: one problem for every engine that is compared.

y = x + o(q(n) + k(n) + v(n)), z = y + down(silu(gate(m)) * up(m)), with n and m the RMS norms of x and y. The sum of
q, k and v stands for attention, whose cost depends on the cache and not on the weights. Each layer has numbers of its
own: ONNX Runtime keeps equal weights once, and a step over equal layers would read a cache, not the memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_runtime.toolchain.quantize.int4 import dequantise

GROUP = 128
BLOCK_BITS = 4 + 32 / GROUP  # of one weight with its share of a float32 scale
EPSILON = 1e-5
INNER = {2048: 5632, 4096: 11008}  # hidden: width of the MLP, as in Llama models of these sizes


@dataclass(frozen=True)
class Int4Linear:
    """``q`` (K, N) int8 in [-8, 7] and ``scales`` (K/GROUP, N) float32 that float16 holds exactly."""

    q: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class Layer:
    """One layer's linears by name, in the order in which they run."""

    hidden: int
    linears: dict[str, Int4Linear]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the 4-bit values alone, half a byte each: the least that any format must read."""
        return sum(linear.q.size for linear in self.linears.values()) // 2


def make_layer(hidden: int, inner: int, seed: int = 0) -> Layer:
    """Return a layer of random weights whose outputs stay near their inputs' size."""
    rng = np.random.default_rng(seed)
    shapes = dict.fromkeys(("q", "k", "v", "o"), (hidden, hidden))
    shapes |= {"gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)}
    return Layer(hidden, {name: _linear(rng, *shape) for name, shape in shapes.items()})


def make_layers(hidden: int, inner: int, least_bytes: int) -> list[Layer]:
    """Return as many different layers as it takes to hold ``least_bytes`` of 4-bit values."""
    layers = [make_layer(hidden, inner)]
    count = math.ceil(least_bytes / layers[0].weight_bytes)
    return layers + [make_layer(hidden, inner, seed) for seed in range(1, count)]


def _linear(rng: np.random.Generator, inputs: int, outputs: int) -> Int4Linear:
    q = rng.integers(-7, 8, (inputs, outputs), dtype=np.int8)  # no mean: it would grow with the width
    spread = rng.uniform(0.5, 1.5, (inputs // GROUP, outputs)) / (4.3 * np.sqrt(inputs))
    return Int4Linear(q, spread.astype(np.float16).astype(np.float32))


def exact_step(layers: Sequence[Layer], x: np.ndarray) -> np.ndarray:
    """Return what ``layers`` make of ``x`` (hidden,), in float32 on dequantised weights."""
    for layer in layers:
        weights = {name: dequantise(linear.q, linear.scales) for name, linear in layer.linears.items()}
        n = _norm(x)
        x = x + (n @ weights["q"] + n @ weights["k"] + n @ weights["v"]) @ weights["o"]
        m = _norm(x)
        gate = m @ weights["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (m @ weights["up"])) @ weights["down"]
    return x


def _norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean() + EPSILON)
