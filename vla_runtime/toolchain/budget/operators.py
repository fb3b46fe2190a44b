"""The operators of a transformer as VLA-Perf counts them (arXiv 2602.18397): multiply-accumulates and tensors.

Counts are per execution; a stage says how often a group of operators runs. Norms, activations, position embeddings
and softmax are not counted: they are fused into their neighbours on the devices that the model is for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tensor:
    """What an operator reads or writes. ``role``: weight, head (weights of the vocabulary), kv or activation."""

    role: str
    elements: int
    on_chip: bool = False


@dataclass(frozen=True)
class Operator:
    """One operator: its multiply-accumulates (``macs``), its tensors, and how often it runs (``repeat``, layers).

    ``shape`` is (batch, rows out, columns, inner) of its matrix product, for a computer whose rate depends on it.
    ``kind``: ``gemm`` (weights), ``attention`` (two activations) or ``other`` (no product, e.g. a norm).
    ``counted_twice``: VLA-Perf counts it and the released code does not run it; no part of a physical floor.
    ``measured_s``: seconds of one execution on the computer at hand, where it was measured there.
    """

    name: str
    kind: str
    macs: int
    tensors: tuple[Tensor, ...]
    shape: tuple[int, ...] = ()
    repeat: int = 1
    counted_twice: bool = False
    measured_s: float | None = None

    @property
    def attention(self) -> bool:
        """Whether both operands are activations, so that the attention's number format holds."""
        return self.kind == "attention"

    def elements(self, *roles: str) -> int:
        """Return the number of elements of the tensors with one of ``roles``."""
        return sum(tensor.elements for tensor in self.tensors if tensor.role in roles)


@dataclass(frozen=True)
class Block:
    """A stack of equal transformer layers. ``ff_inputs``: 2 for a gated feed-forward part, else 1."""

    name: str
    layers: int
    width: int
    ff_width: int
    heads: int
    kv_heads: int
    head_dim: int
    ff_inputs: int

    @property
    def parameters(self) -> int:
        """Weights of the matrices: projections and feed-forward part, without norms and embeddings."""
        attention = self.width * self.qkv_width + self.heads * self.head_dim * self.width
        return self.layers * (attention + (self.ff_inputs + 1) * self.width * self.ff_width)

    @property
    def qkv_width(self) -> int:
        """Columns of the joint query, key and value projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim


def gemm(
    name: str, batch: int, rows: int, columns: int, inner: int, *, on_chip: bool = False, role: str = "weight"
) -> Operator:
    """Return a product with weights: GEMM(B, M, N, K) of VLA-Perf, ``rows`` = outputs M, ``columns`` = tokens N.

    ``on_chip`` keeps input and output on the chip; the weights are always read from memory.
    """
    tensors = (
        Tensor("activation", batch * inner * columns, on_chip),
        Tensor(role, rows * inner),
        Tensor("activation", batch * rows * columns, on_chip),
    )
    return Operator(name, "gemm", batch * rows * columns * inner, tensors, (batch, rows, columns, inner))


def attention(
    name: str, block: Block, batch: int, queries: int, keys: int, *, scores_first: bool, on_chip: bool = False
) -> Operator:
    """Return Logit (``scores_first``: queries x keys) or Attend (scores x values) over all heads.

    Scores never leave the chip, with ``on_chip`` queries and result do not either; keys and values come from memory.
    """
    token_elements = Tensor("activation", batch * block.heads * queries * block.head_dim, on_chip)
    cache = Tensor("kv", batch * block.kv_heads * keys * block.head_dim)
    scores = Tensor("activation", batch * block.heads * queries * keys, True)
    tensors = (token_elements, cache, scores) if scores_first else (scores, cache, token_elements)
    inner, rows = (block.head_dim, keys) if scores_first else (keys, block.head_dim)
    macs = batch * block.heads * queries * keys * block.head_dim
    return Operator(name, "attention", macs, tensors, (batch * block.heads, rows, queries, inner))


def _pair(suffix: str, block: Block, batch: int, queries: int, keys: int, on_chip: bool = False) -> list[Operator]:
    return [
        attention(f"logit{suffix}", block, batch, queries, keys, scores_first=True, on_chip=on_chip),
        attention(f"attend{suffix}", block, batch, queries, keys, scores_first=False, on_chip=on_chip),
    ]


def _feed_forward(block: Block, batch: int, tokens: int, *, on_chip: bool) -> list[Operator]:
    return [
        gemm("up+gate" if block.ff_inputs == 2 else "up", batch, block.ff_width * block.ff_inputs, tokens, block.width,
             on_chip=on_chip),
        gemm("down", batch, block.width, tokens, block.ff_width, on_chip=on_chip),
    ]  # fmt: skip


def repeated(operators: Iterable[Operator], times: int) -> list[Operator]:
    """Return the operators with ``repeat`` multiplied by ``times``."""
    return [replace(operator, repeat=operator.repeat * times) for operator in operators]


def prefill(block: Block, batch: int, tokens: int) -> list[Operator]:
    """Return a whole block over ``batch`` sequences of ``tokens``: an encoder, or a language model's prefill."""
    layer = [
        gemm("qkv", batch, block.qkv_width, tokens, block.width),
        *_pair("", block, batch, tokens, tokens),
        gemm("out", batch, block.width, tokens, block.heads * block.head_dim),
        *_feed_forward(block, batch, tokens, on_chip=False),
    ]
    return repeated(layer, block.layers)


def decode(block: Block, context: int, generated: int) -> list[Operator]:
    """Return one autoregressive token: ``context`` cached tokens and ``generated`` new ones; activations on chip."""
    layer = [
        gemm("qkv", 1, block.qkv_width, 1, block.width, on_chip=True),
        *_pair(" prefix", block, 1, 1, context, True),
        *(_pair(" new", block, 1, 1, generated, True) if generated else []),
        gemm("out", 1, block.width, 1, block.heads * block.head_dim, on_chip=True),
        *_feed_forward(block, 1, 1, on_chip=True),
    ]
    return repeated(layer, block.layers)


def flow_step(block: Block, context: int, tokens: int, kind: str, context_width: int = 0) -> list[Operator]:
    """Return one denoising step of an action expert over ``tokens`` action tokens.

    ``kind`` says what a layer attends to:
        joint: VLA-Perf's parallel decode: the prefix's cache and, with a second projection of its own, the tokens
        shared: prefix and tokens with one projection, as the released code of pi0 and SmolVLA does it
        cross: the prefix alone; its features (``context_width`` wide) are projected to keys and values in every step
        self: the tokens alone

    Attention activations stay on chip, those of the feed-forward part do not (VLA-Perf's convention).
    """
    inner = block.heads * block.head_dim
    qkv = gemm("qkv", 1, block.qkv_width, tokens, block.width, on_chip=True)
    if kind == "joint":
        layer = [qkv, *_pair(" prefix", block, 1, tokens, context, True)]
        if tokens > 1:
            layer += [
                replace(qkv, name="qkv self", counted_twice=True),
                *_pair(" self", block, 1, tokens, tokens, True),
            ]
    elif kind == "shared":
        layer = [
            qkv,
            *_pair(" prefix", block, 1, tokens, context, True),
            *_pair(" self", block, 1, tokens, tokens, True),
        ]
    elif kind == "cross":
        layer = [
            gemm("q", 1, inner, tokens, block.width, on_chip=True),
            gemm("kv of prefix", 1, 2 * block.kv_heads * block.head_dim, context, context_width, on_chip=True),
            *_pair(" prefix", block, 1, tokens, context, True),
        ]
    else:
        layer = [qkv, *_pair(" self", block, 1, tokens, tokens, True)]
    layer += [
        gemm("out", 1, block.width, tokens, inner, on_chip=True),
        *_feed_forward(block, 1, tokens, on_chip=False),
    ]
    return repeated(layer, block.layers)
