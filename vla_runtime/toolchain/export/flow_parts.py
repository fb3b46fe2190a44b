"""What LeRobot's flow-matching policies share: SigLIP, the embedding of flow time, and fields of the bundle.

Flow time is turned round: in a bundle 0 is noise and 1 is clean, in LeRobot 1 is noise, so v changes its sign.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.attention import as_keys, as_values, attend, queries_keys_values
from vla_runtime.toolchain.export.lerobot_checkpoint import Checkpoint

CONTEXT = ["context_keys", "context_values", "prefix_mask"]


class Siglip(nn.Module):
    """transformers' SigLIP, or SmolVLM's form of it: images (n, 3, h, w) to features of the patches (n, p, width).

    ``embedded``: what its embedding makes of the picture ``blank``, both (1, ...).
    """

    def __init__(self, vision: nn.Module, blank: Tensor, embedded: Tensor):
        super().__init__()
        self.patches, self.layers = vision.embeddings.patch_embedding, vision.encoder.layers
        self.norm = vision.post_layernorm
        # The positions of a whole picture do not depend on it: what the embedding adds to its patches.
        self.register_buffer("positions", embedded - self.patches(blank).flatten(2).transpose(1, 2))

    def forward(self, images: Tensor) -> Tensor:
        """Encode all pictures as one batch."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for layer in self.layers:
            attention = layer.self_attn
            query, key, value = queries_keys_values(attention, layer.layer_norm1(x), attention.head_dim)
            x = x + attention.out_proj(attend(query * attention.scale, as_keys(key), as_values(value)))
            x = x + layer.mlp(layer.layer_norm2(x))
        return self.norm(x)


class TimeWave(nn.Module):
    """Flow time (1, n) of the bundle to sines and cosines (1, n, width), as the expert was trained on them."""

    def __init__(self, width: int, config: Any):
        super().__init__()
        fraction = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64)
        period = config.min_period * (config.max_period / config.min_period) ** fraction
        self.register_buffer("frequency", (2 * math.pi / period).float())

    def forward(self, time: Tensor) -> Tensor:
        """Embed the time as LeRobot counts it."""
        angle = (1.0 - time)[..., None] * self.frequency
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


def refuse_normalised_pictures(checkpoint: Checkpoint) -> None:
    """Refuse statistics for pictures: these policies bring them to [-1, 1] themselves."""
    if checkpoint.config.get("normalization_mapping", {}).get("VISUAL", "IDENTITY") != "IDENTITY":
        raise UserError(
            f"{checkpoint.path}/config.json: {checkpoint.config['type']} normalises pictures itself; "
            "normalization_mapping.VISUAL must be IDENTITY"
        )


def flow_fields(config: dict, cameras: list[str], look: dict, steps: int) -> dict:
    """Return the fields of ``Exported`` that do not depend on the model. ``look``: what all cameras share."""
    return {
        "family": "flow",
        "cameras": [{"name": name, **look} for name in cameras],
        "horizon": int(config["chunk_size"]),
        "sampler": {"kind": "flow", "steps": steps, "noise": "normal", "time": "noise_to_clean"},
        "pad_action": int(config["max_action_dim"]),
        "rtc": {"prefix_trained": False, "max_guidance_weight": 10.0},
    }


def flow_example(config: dict, cameras: int, height: int, width: int) -> dict[str, Tensor]:
    """Return one observation's tensors, half of the text padding, for writing the stages."""
    generator = torch.Generator().manual_seed(0)
    tokens, horizon = int(config["tokenizer_max_length"]), int(config["chunk_size"])
    return {
        "images": torch.randn(cameras, 3, height, width, generator=generator),
        "text_tokens": torch.ones(1, tokens, dtype=torch.int64),
        "text_mask": torch.arange(tokens)[None] < max(1, tokens // 2),
        "state": torch.randn(1, int(config["max_state_dim"]), generator=generator),
        "x": torch.randn(1, horizon, int(config["max_action_dim"]), generator=generator),
        "time": torch.full((1, horizon), 0.4),
    }
