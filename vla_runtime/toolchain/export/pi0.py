"""LeRobot's pi0 (arXiv 2410.24164) and pi0.5 (arXiv 2504.16054): SigLIP, Gemma over the prefix, a Gemma action expert.

The modules and weights are LeRobot's own; how they are run is written anew, as for SmolVLA (smolvla.py). Layer by layer
the expert attends to the language model's keys and values. pi0 reads the state as a row before the actions; pi0.5
reads it as numbers in the prompt, and its norms are set by the flow's time.
Needs LeRobot 0.6 (`make setup-peers-pi`).
"""

import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.attention import (
    Norm,
    Rotary,
    as_keys,
    as_values,
    attend,
    layer_norms,
    queries_keys_values,
    rms,
    score_mask,
    turn,
)
from vla_runtime.toolchain.export.flow_parts import (
    CONTEXT,
    Siglip,
    TimeWave,
    flow_example,
    flow_fields,
    refuse_normalised_pictures,
)
from vla_runtime.toolchain.export.lerobot_checkpoint import Checkpoint
from vla_runtime.toolchain.export.request import Exported, ExportRequest
from vla_runtime.toolchain.export.stages import StageSource

BINS = 256  # of a number of the state between -1 and 1, in pi0.5's prompt
PROMPT = "Task: {instruction}, State: {state};\nAction: "


class GemmaNorm(Norm):
    """Gemma's RMS norm: the weight is kept as its difference from 1."""

    def __init__(self, source: nn.Module):
        nn.Module.__init__(self)
        self.weight, self.epsilon = nn.Parameter(1.0 + source.weight.detach()), source.eps


class Conditioned(nn.Module):
    """pi0.5's RMS norm: the flow's time sets scale and shift, and the gate of what reads it."""

    def __init__(self, source: nn.Module):
        super().__init__()
        self.dense, self.epsilon = source.dense, source.eps

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """x (1, s, width), condition (1, 1, width): the normed rows, and the gate (1, 1, width)."""
        scale, shift, gate = self.dense(condition).chunk(3, dim=-1)
        return rms(x, self.epsilon) * (1.0 + scale) + shift, gate


class Vision(nn.Module):
    """images (cameras, 3, h, w) -> image_tokens (1, n, width)."""

    def __init__(self, flow: nn.Module, size: int):
        super().__init__()
        model = flow.paligemma_with_expert.paligemma.model
        blank = torch.zeros(1, 3, size, size)
        tower = model.vision_tower.vision_model
        with torch.no_grad():
            self.tower = Siglip(tower, blank, tower.embeddings(blank))
        self.project = model.multi_modal_projector.linear

    def forward(self, images: Tensor) -> Tensor:
        """Encode all cameras as one batch and lay their tokens in a row."""
        return self.project(self.tower(images)).flatten(0, 1)[None]


class Backbone(nn.Module):
    """Prefill: image tokens and text to the keys and values of all layers, which the expert attends to.

    keys (1, layers, kv, d, s), values (1, layers, kv, s, d), as the products of the action stage read them.
    prefix_mask (1, s) float: 1 for real tokens.
    """

    def __init__(self, flow: nn.Module):
        super().__init__()
        text = flow.paligemma_with_expert.paligemma.model.language_model
        self.words, self.layers = text.get_input_embeddings(), text.layers
        self.norms = layer_norms(text.layers, GemmaNorm)
        self.size = text.config.head_dim
        self.rotate = Rotary(self.size)

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, text_mask: Tensor):
        """Run the language model over the prefix, in which everything sees everything but padding."""
        x = torch.cat([image_tokens, self.words(text_tokens)], dim=1)
        real = torch.cat([torch.ones(1, image_tokens.shape[1]), text_mask.float()], dim=1)
        cos, sin = self.rotate(real.long().cumsum(1) - 1)
        scale = self.size**-0.5
        added = score_mask((real > 0.5)[:, None, :], 1)
        keys, values = [], []
        for layer, (before, behind) in zip(self.layers, self.norms):
            query, key, value = queries_keys_values(layer.self_attn, before(x), self.size)
            keys.append(as_keys(turn(key, cos, sin)))
            values.append(as_values(value))
            if layer is not self.layers[-1]:  # of the last layer only keys and values are read
                seen = attend(turn(query, cos * scale, sin * scale), keys[-1], values[-1], added)
                x = x + layer.self_attn.o_proj(seen)
                x = x + layer.mlp(behind(x))
        return torch.stack(keys, 1), torch.stack(values, 1), real


class Expert(nn.Module):
    """What the flow step of both has in common: rows behind a prefix, through the expert's layers."""

    def __init__(self, flow: nn.Module):
        super().__init__()
        expert = flow.paligemma_with_expert.gemma_expert.model
        self.inward, self.outward = flow.action_in_proj, flow.action_out_proj
        self.wave = TimeWave(expert.config.hidden_size, flow.config)
        self.layers = expert.layers
        kind = GemmaNorm if expert.norm.dense is None else Conditioned
        self.norms, self.norm = layer_norms(expert.layers, kind), kind(expert.norm)
        self.groups = expert.config.num_attention_heads // expert.config.num_key_value_heads
        self.size = expert.config.head_dim
        self.rotate = Rotary(self.size)

    def read(self, h: Tensor, unseen: int, context: tuple[Tensor, Tensor, Tensor], condition: Tensor | None = None):
        """h (1, s, width) to the same, normed. The first ``unseen`` rows see the prefix and themselves, the others all.

        ``context``: keys, values and mask of the prefix.
        """
        context_keys, context_values, prefix_mask = context
        rows, order = h.shape[1], torch.arange(h.shape[1])
        own = (order[:, None] >= unseen) | (order[None, :] < unseen)
        seen = torch.cat([(prefix_mask > 0.5)[:, None, :].expand(-1, rows, -1), own[None]], dim=2)
        added = score_mask(seen, self.groups)
        cos, sin = self.rotate(prefix_mask.long().sum(1, keepdim=True) + order[None])
        scale = self.size**-0.5
        for index, (layer, (before, behind)) in enumerate(zip(self.layers, self.norms)):
            normed, gate = through(before, h, condition)
            query, key, value = queries_keys_values(layer.self_attn, normed, self.size)
            key = torch.cat([context_keys[:, index], as_keys(turn(key, cos, sin))], dim=3)
            value = torch.cat([context_values[:, index], as_values(value)], dim=2)
            found = attend(turn(query, cos * scale, sin * scale), key, value, added)
            h = gated(h, layer.self_attn.o_proj(found), gate)
            normed, gate = through(behind, h, condition)
            h = gated(h, layer.mlp(normed), gate)
        return through(self.norm, h, condition)[0]


def through(norm: nn.Module, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the normed rows and the gate of what reads them; None: it has no gate."""
    return (norm(x), None) if condition is None else norm(x, condition)


def gated(x: Tensor, change: Tensor, gate: Tensor | None) -> Tensor:
    """Return the residual's next value."""
    return x + (change if gate is None else change * gate)


class StateRowAction(Expert):
    """pi0's flow step: x (1, H, a), time (1, H) and state (1, n) to v (1, H, a)."""

    def __init__(self, flow: nn.Module):
        super().__init__(flow)
        self.state_proj = flow.state_proj
        self.mix_in, self.mix_out = flow.action_time_mlp_in, flow.action_time_mlp_out

    def forward(self, x: Tensor, time: Tensor, state: Tensor, *context: Tensor) -> Tensor:
        """Return the velocity in this project's direction of time."""
        mixed = self.mix_in(torch.cat([self.inward(x), self.wave(time)], dim=-1))
        rows = torch.cat([self.state_proj(state)[:, None], self.mix_out(nn.functional.silu(mixed))], dim=1)
        # The state does not see the actions, which see it and each other, earlier and later ones.
        return -self.outward(self.read(rows, 1, context)[:, 1:])


class ConditionedAction(Expert):
    """pi0.5's flow step: x (1, H, a) and time (1, H) to v (1, H, a)."""

    def __init__(self, flow: nn.Module):
        super().__init__(flow)
        self.time_in, self.time_out = flow.time_mlp_in, flow.time_mlp_out

    def forward(self, x: Tensor, time: Tensor, *context: Tensor) -> Tensor:
        """Return the velocity in this project's direction of time."""
        # One time for all rows: a checkpoint of LeRobot's has seen no other, and the norms' large product has one row.
        # The last row is the one that is never committed.
        wave = self.wave(time[:, -1:])
        silu = nn.functional.silu
        condition = silu(self.time_out(silu(self.time_in(wave))))
        return -self.outward(self.read(self.inward(x), 0, context, condition))


def export(checkpoint: Checkpoint, request: ExportRequest) -> Exported:
    """Build the stages and the fields of policy.yaml that are pi0's or pi0.5's own."""
    from vla_runtime.toolchain.export.lerobot_load import load_policy

    config = checkpoint.config
    request.refuse_features(config, {"observation.state"})
    if config.get("use_relative_actions"):
        raise UserError(
            "use_relative_actions is set: a bundle has no action.space for joints of which some are relative"
        )
    refuse_normalised_pictures(checkpoint)
    flow = load_policy(checkpoint.path, config["type"]).model
    # What LeRobot puts in the place of these is masked and takes no position: leaving them out is the same.
    cameras = [name for name in checkpoint.cameras if not name.startswith("empty_camera_")]
    size, wide = int(config["image_resolution"][0]), int(config["max_state_dim"])
    # The picture keeps its shape; black is added on both sides.
    look = {"width": size, "height": size, "resize": "pad", "mean": [0.5] * 3, "std": [0.5] * 3}
    tokens, in_prompt = int(config["tokenizer_max_length"]), config["type"] == "pi05"
    if in_prompt:
        state = {"values": checkpoint.width("observation.state"), "bins": BINS}
        instruction = {"template": PROMPT, "spaces": "_\n", "state": state}
        action = StageSource("action", ConditionedAction(flow), ["x", "time", *CONTEXT], ["v"])
    else:
        instruction = {"template": "{instruction}\n"}
        action = StageSource("action", StateRowAction(flow), ["x", "time", "state", *CONTEXT], ["v"])
    return Exported(
        **flow_fields(config, cameras, look, int(config["num_inference_steps"])),
        sources=[
            StageSource("vision", Vision(flow, size), ["images"], ["image_tokens"]),
            StageSource("backbone", Backbone(flow), ["image_tokens", "text_tokens", "text_mask"], CONTEXT),
            action,
        ],
        example=flow_example(config, len(cameras), size, size),
        instruction={"max_tokens": tokens, **instruction},
        pad_state=None if in_prompt else wide,
    )
