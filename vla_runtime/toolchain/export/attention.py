"""What the exported transformers share, written so that engines have little to do besides the products.

No key or value is copied for each head that reads it, and what does not change from layer to layer (angles, masks, the
scale of the scores) is computed before the layers.
"""

import torch
from torch import Tensor, nn

MASKED = -30_000.0  # far below any score, and finite in fp16 and bf16 too: -inf there makes NaN of a row


class Norm(nn.Module):
    """A Llama's RMS norm, in the form that ONNX Runtime, OpenVINO and TensorRT know as one operator."""

    def __init__(self, source: nn.Module):
        super().__init__()
        self.weight, self.epsilon = source.weight, source.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        """x (..., width)."""
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of halves, not pairs.

    x (1, s, heads, d); cos, sin (1, s, 1, d), sin negative in its first half.
    """
    half = x.shape[-1] // 2
    return x * cos + torch.cat([x[..., half:], x[..., :half]], dim=-1) * sin


def heads(projection: nn.Module, x: Tensor, size: int) -> Tensor:
    """Project and split into heads: (1, s, n, size)."""
    return projection(x).unflatten(-1, (-1, size))


def as_keys(x: Tensor) -> Tensor:
    """(b, s, kv, d) to (b, kv, d, s): as the scores' product reads them."""
    return x.permute(0, 2, 3, 1)


def as_values(x: Tensor) -> Tensor:
    """(b, s, kv, d) to (b, kv, s, d)."""
    return x.transpose(1, 2)


def score_mask(allowed: Tensor, groups: int) -> Tensor:
    """What is added to the scores: allowed (1, q, k) to (1, 1, groups * q, k)."""
    return torch.where(allowed, 0.0, MASKED).repeat(1, groups, 1)[:, None]


def attend(query: Tensor, key: Tensor, value: Tensor, added: Tensor | None = None) -> Tensor:
    """Grouped attention to (b, q, heads * d).

    query (b, q, heads, d), scaled already; key (b, kv, d, k); value (b, kv, k, d); added (1, 1, heads / kv * q, k).
    All heads that read one key stand below each other in a single product.
    """
    rows, groups = query.shape[1], query.shape[2] // key.shape[1]
    below = query.unflatten(2, (-1, groups)).permute(0, 2, 3, 1, 4).flatten(2, 3)
    scores = below @ key
    seen = (scores if added is None else scores + added).softmax(-1) @ value
    return seen.unflatten(2, (groups, rows)).permute(0, 3, 1, 2, 4).flatten(2)
