"""What the exported transformers share, written so that engines have little to do besides the products.

No key or value is copied for each head that reads it, and what does not change from layer to layer (angles, masks, the
scale of the scores) is computed before the layers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

WAVELENGTH = 10_000.0
LONGEST = 4096  # tokens of pictures, text and actions together
MASKED = -30_000.0  # far below any score, and finite in fp16 and bf16 too: -inf there makes NaN of a row


class Norm(nn.Module):
    """A Llama's RMS norm, in the form that ONNX Runtime, OpenVINO and TensorRT know as one operator."""

    def __init__(self, source: nn.Module):
        super().__init__()
        self.weight, self.epsilon = source.weight, source.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        """x (..., width)."""
        return rms(x, self.epsilon) * self.weight


def rms(x: Tensor, epsilon: float) -> Tensor:
    """x (..., width) over the root of its mean square."""
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


def layer_norms(layers: nn.ModuleList, kind: Callable[[nn.Module], nn.Module] = Norm) -> nn.ModuleList:
    """Return what each layer's two norms become: before attention, and before the linears behind it."""
    return nn.ModuleList(
        nn.ModuleList([kind(layer.input_layernorm), kind(layer.post_attention_layernorm)]) for layer in layers
    )


class Rotary(nn.Module):
    """Rotary embedding's angles. A table, so that no engine rounds them to 16 bit."""

    def __init__(self, size: int, length: int = LONGEST):
        super().__init__()
        scale = WAVELENGTH ** (torch.arange(size // 2, dtype=torch.float32) * (2.0 / size))
        angle = torch.arange(length)[:, None].float() / scale
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], dim=-1))
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], dim=-1))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``turn`` reads for positions (1, s) int64: cos, sin (1, s, 1, d)."""
        return self.cos[positions][:, :, None], self.sin[positions][:, :, None]


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of halves, not pairs.

    x (1, s, heads, d); cos, sin (1, s, 1, d), sin negative in its first half.
    """
    half = x.shape[-1] // 2
    return x * cos + torch.cat([x[..., half:], x[..., :half]], dim=-1) * sin


def heads(projection: nn.Module, x: Tensor, size: int) -> Tensor:
    """Project and split into heads: (1, s, n, size)."""
    return projection(x).unflatten(-1, (-1, size))


def queries_keys_values(attention: nn.Module, x: Tensor, size: int) -> list[Tensor]:
    """Project to what an attention layer reads, (1, s, n, size) each: neither scaled nor turned yet."""
    return [heads(each, x, size) for each in (attention.q_proj, attention.k_proj, attention.v_proj)]


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
