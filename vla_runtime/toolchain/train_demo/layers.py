"""Transformer parts of the demo model."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """Soft-max attention, (B, heads, length, head) each.

    On a CPU the fused kernel's backward pass in bfloat16 is ten times slower than these products (torch 2.13); and
    spelt out it exports to plain MatMul and Softmax.
    """
    scores = torch.matmul(query * query.shape[-1] ** -0.5, keys.transpose(-2, -1))
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return torch.matmul(torch.softmax(scores, -1).to(values.dtype), values)


class Mlp(nn.Sequential):
    """Two linear layers with SiLU between them."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__(nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, outputs))


class FeedForward(nn.Sequential):
    """The feed-forward part of a block, four times as wide inside."""

    def __init__(self, width: int):
        super().__init__(nn.Linear(width, 4 * width), nn.ReLU(inplace=True), nn.Linear(4 * width, width))


class Attention(nn.Module):
    """Multi-head self-attention; ``bias`` is added to the scores and broadcast to (B, heads, length, length)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return (B, length, width) for x of that shape."""
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        )
        return self.out(attend(q, k, v, bias).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.feed = Attention(width, heads), FeedForward(width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return (B, length, width) for x of that shape."""
        x = x + self.attend(self.norms[0](x), bias)
        return x + self.feed(self.norms[1](x))
