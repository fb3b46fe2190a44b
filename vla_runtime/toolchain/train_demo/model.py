"""The demo's vision-language-action model, in PyTorch. Training and export only: the runtime reads the ONNX stages.

Three parts, one per exported stage: a convolutional stem with ViT blocks per camera; a causal transformer over image,
instruction, pointing and state tokens; a flow-matching expert with one token per control tick that cross-attends to
every layer of the transformer. Every linear layer inside the blocks has 128 or 512 inputs: groups of 128 for INT4.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vla_runtime.toolchain.train_demo.layers import Attention, Block, FeedForward, Mlp, attend

# The commands are jerk-limited, so an average over 40 ms costs nothing, and takes out the jitter between ticks.
SMOOTH_TICKS = 2.0


@dataclass(frozen=True)
class ModelConfig:
    """Sizes. The pointing reads ``fine`` x ``fine`` cells of ``fine_width`` features, a quarter of the resolution."""

    cameras: int = 2
    image: int = 96
    width: int = 128
    heads: int = 4
    vision_blocks: int = 2
    backbone_blocks: int = 3
    expert_blocks: int = 3
    fine_width: int = 64
    pointers: int = 4
    vocabulary: int = 64
    text_tokens: int = 16
    joints: int = 6
    horizon: int = 50

    @property
    def fine(self) -> int:
        """Cells per side of the pointing map."""
        return self.image // 4

    @property
    def patches(self) -> int:
        """Image tokens per camera."""
        return (self.image // 16) ** 2

    @property
    def sequence(self) -> int:
        """Backbone tokens: images, instruction, one pointing token per camera, state."""
        return self.cameras * self.patches + self.text_tokens + self.cameras + 1

    def to_dict(self) -> dict:
        """Return the fields, for the bundle's provenance."""
        return asdict(self)


def _convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU(inplace=True)
    )


class Vision(nn.Module):
    """Pictures to coarse tokens, through ViT blocks, and to finer features for the pointing."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        first = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(inplace=True))
        self.stem = nn.Sequential(first, _convolution(32, c.fine_width))
        self.down = nn.Sequential(_convolution(c.fine_width, c.width), _convolution(c.width, c.width))
        self.position = nn.Parameter(torch.randn(1, c.cameras, c.patches, c.width) * 0.02)
        self.blocks = nn.ModuleList(Block(c.width, c.heads) for _ in range(c.vision_blocks))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, cameras, 3, h, w) -> tokens (B, cameras * patches, width), features (B, cameras, fine^2, fine_width)."""
        c, batch = self.c, images.shape[0]
        fine = self.stem(images.reshape(batch * c.cameras, 3, c.image, c.image))
        x = self.down(fine).flatten(2).transpose(1, 2).reshape(batch, c.cameras, c.patches, c.width)
        x = (x + self.position).reshape(batch * c.cameras, c.patches, c.width)
        for block in self.blocks:
            x = block(x)
        tokens = x.reshape(batch, c.cameras * c.patches, c.width)
        features = fine.flatten(2).transpose(1, 2).reshape(batch, c.cameras, c.fine**2, c.fine_width)
        return tokens, features


class Pointing(nn.Module):
    """Where in each picture is what the text names: a soft-max over cells (and "not here") conditioned on the text."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        self.query = nn.Sequential(
            nn.Linear(c.width, c.width), nn.SiLU(), nn.Linear(c.width, c.pointers * c.fine_width)
        )
        self.key = nn.Linear(c.fine_width, c.fine_width)
        self.nowhere = nn.Parameter(torch.zeros(c.pointers, 1))
        centres = (torch.arange(c.fine) + 0.5) / c.fine
        grid = torch.stack([centres.repeat(c.fine), centres.repeat_interleave(c.fine)], 1)  # (cells, 2): u, v
        self.register_buffer("grid", grid, persistent=False)
        self.token = Mlp(c.pointers * (c.fine_width + 3), c.width, c.width)

    def forward(self, features: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (B, cameras, width) and log-probabilities (B, cameras, pointers, cells + 1; last: not here)."""
        c, batch = self.c, features.shape[0]
        query = self.query(text).reshape(batch, 1, c.pointers, c.fine_width)
        scores = torch.matmul(query, self.key(features).transpose(2, 3)).float() * c.fine_width**-0.5 * 4.0
        nowhere = self.nowhere.float().expand(batch, c.cameras, c.pointers, 1)
        log_p = functional.log_softmax(torch.cat([scores, nowhere], -1), -1)
        p = log_p.exp()
        here = 1.0 - p[..., -1:]
        p = p[..., :-1] / (here + 1e-4)
        where = torch.matmul(p, self.grid)
        what = torch.matmul(p.to(features.dtype), features)
        seen = torch.cat([(where - 0.5) * 4.0, here, what.float()], -1).reshape(batch, c.cameras, -1)
        return self.token(seen), log_p


class Backbone(nn.Module):
    """Causal transformer; returns what the expert reads, and what the auxiliary losses do."""

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        self.words = nn.Embedding(c.vocabulary, c.width)
        self.pointing = Pointing(c)
        self.state = Mlp(c.joints, c.width, c.width)
        self.position = nn.Parameter(torch.randn(1, c.sequence, c.width) * 0.02)
        self.blocks = nn.ModuleList(Block(c.width, c.heads) for _ in range(c.backbone_blocks))
        self.norm = nn.LayerNorm(c.width)
        self.condition = nn.Linear(c.width, c.width)
        self.goal = nn.Linear(c.width, 5)
        self.kv_norms = nn.ModuleList(nn.LayerNorm(c.width) for _ in range(c.expert_blocks))
        self.keys = nn.ModuleList(nn.Linear(c.width, c.width) for _ in range(c.expert_blocks))
        self.values = nn.ModuleList(nn.Linear(c.width, c.width) for _ in range(c.expert_blocks))
        self.register_buffer("causal", torch.triu(torch.full((c.sequence, c.sequence), -1e4), 1), persistent=False)

    def forward(
        self, image_tokens: Tensor, image_features: Tensor, text_tokens: Tensor, text_mask: Tensor, state: Tensor
    ):
        """Return keys, values (per layer (B, heads, sequence, head)), mask (B, sequence), condition, goal, log_p."""
        c = self.c
        words, mask = self.words(text_tokens), text_mask.float()
        text = (words * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1.0)
        points, log_p = self.pointing(image_features, text)
        x = torch.cat([image_tokens, words, points, self.state(state)[:, None]], 1) + self.position
        image = c.cameras * c.patches
        bias = functional.pad((mask - 1.0) * 1e4, (image, c.cameras + 1))  # (B, sequence): padding is never read
        layers, each = [], c.backbone_blocks / c.expert_blocks
        for block in self.blocks:
            x = block(x, self.causal + bias[:, None, None])
            layers.append(x)
        final = self.norm(x[:, -1])
        keys, values = [], []
        for k in range(c.expert_blocks):
            hidden = self.kv_norms[k](layers[min(int(k * each), len(layers) - 1)])
            keys.append(_split(self.keys[k](hidden), c.heads))
            values.append(_split(self.values[k](hidden), c.heads))
        return keys, values, bias, self.condition(final), self.goal(final), log_p


def _split(x: Tensor, heads: int) -> Tensor:
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(1, 2)


def smoothing(length: int, sigma: float) -> Tensor:
    """Return a (length, length) Gaussian average over neighbouring ticks; rows sum to 1."""
    ticks = torch.arange(length, dtype=torch.float32)
    kernel = torch.exp(-0.5 * ((ticks[:, None] - ticks[None]) / sigma) ** 2)
    return kernel / kernel.sum(1, keepdim=True)


class ExpertBlock(nn.Module):
    """Self-attention over the ticks, cross-attention to one layer of the backbone, feed-forward."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attend = Attention(width, heads)
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.feed = FeedForward(width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Return (B, ticks, width) for x of that shape; ``bias`` (B, 1, 1, sequence) hides padding."""
        x = x + self.attend(self.norms[0](x))
        query = _split(self.query(self.norms[1](x)), self.heads)
        seen = attend(query, keys, values, bias)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[2](x))


class ActionExpert(nn.Module):
    """Predicts the clean chunk from a noisy one; the velocity of the flow follows from it.

    Predicting the clean chunk (smooth) instead of the velocity (which holds the noise) is what a narrow network can do;
    near time 1 the division is bounded.
    """

    def __init__(self, c: ModelConfig):
        super().__init__()
        self.c = c
        self.embed = nn.Linear(c.joints, c.width)
        self.fuse = Mlp(2 * c.width, c.width, c.width)
        self.position = nn.Parameter(torch.randn(1, c.horizon, c.width) * 0.02)
        self.blocks = nn.ModuleList(ExpertBlock(c.width, c.heads) for _ in range(c.expert_blocks))
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.joints)
        frequencies = torch.exp(torch.linspace(0.0, 5.3, c.width // 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("smooth", smoothing(c.horizon, SMOOTH_TICKS), persistent=False)

    def clean(
        self, x: Tensor, time: Tensor, keys: Tensor, values: Tensor, bias: Tensor, condition: Tensor, state: Tensor
    ):
        """Return the clean chunk (B, horizon, joints) for noisy ``x`` at per-token ``time`` (B, horizon)."""
        angles = time[..., None] * self.frequencies
        clock = torch.cat([angles.sin(), angles.cos()], -1)
        h = self.fuse(torch.cat([self.embed(x), clock.to(x.dtype)], -1)) + self.position + condition[:, None]
        for k, block in enumerate(self.blocks):
            h = block(h, keys[k], values[k], bias[:, None, None])
        out = functional.linear(self.norm(h).float(), self.head.weight.float(), self.head.bias.float())
        return torch.matmul(self.smooth, out) + state[:, None]

    def forward(
        self, x: Tensor, time: Tensor, keys: Tensor, values: Tensor, bias: Tensor, condition: Tensor, state: Tensor
    ):
        """Return the velocity v (B, horizon, joints) of x + v dt, time 0 = noise, 1 = clean."""
        clean = self.clean(x, time, keys, values, bias, condition, state)
        return (clean - x) / (1.0 - time).clamp(min=0.05)[..., None]


class DemoVla(nn.Module):
    """The three stages. State and actions share one normalisation: the expert predicts offsets from the state."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.vision, self.backbone, self.action = Vision(config), Backbone(config), ActionExpert(config)
        self.apply(_initialise)
        nn.init.zeros_(self.action.head.weight)

    def encode(self, images: Tensor, text_tokens: Tensor, text_mask: Tensor, state: Tensor):
        """Vision and backbone; see Backbone.forward."""
        return self.backbone(*self.vision(images), text_tokens, text_mask, state)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=min(0.06, module.in_features**-0.5))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
