"""LeRobot's SmolVLA (arXiv 2506.01844): vision, backbone prefill, and one flow step of the action expert.

The modules and weights are LeRobot's own; how they are run is written anew, with fixed shapes and without what need not
be repeated: the expert's keys and values of the prefix are computed once per chunk in the backbone, not at every flow
step. Flow time is turned round: here 0 is noise and 1 is clean, so v changes its sign; it is given per row.
"""

import math

import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.attention import (
    Norm,
    Rotary,
    as_keys,
    as_values,
    attend,
    heads,
    layer_norms,
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


class Vision(nn.Module):
    """images (cameras, 3, h, w) -> image_tokens (1, n, width), scaled as the backbone expects them."""

    def __init__(self, flow: nn.Module, height: int, width: int):
        super().__init__()
        core = flow.vlm_with_expert.get_vlm_model()
        vision = core.vision_model
        self.connector = core.connector
        blank = torch.zeros(1, 3, height, width)
        grid = (height // vision.patch_size, width // vision.patch_size)
        with torch.no_grad():
            self.tower = Siglip(vision, blank, vision.embeddings(blank, torch.ones(1, *grid, dtype=torch.bool)))
            words = core.text_model.get_input_embeddings()
            marks = [flow.global_image_start_token, flow.image_end_token]
            none = torch.zeros(0, words.embedding_dim)
            start, end = (words(ids) if flow.add_image_special_tokens else none for ids in marks)
        self.register_buffer("start", start)
        self.register_buffer("end", end)

    def forward(self, images: Tensor) -> Tensor:
        """Encode all cameras as one batch and lay their tokens in a row."""
        tokens = self.connector(self.tower(images))
        tokens = tokens * math.sqrt(tokens.shape[-1])
        count = images.shape[0]
        start, end = (each.expand(count, -1, -1) for each in (self.start, self.end))
        return torch.cat([start, tokens, end], dim=1).flatten(0, 1)[None]


class Backbone(nn.Module):
    """Prefill: image tokens, text and state to the keys and values that the expert attends to, for all its layers.

    keys (1, layers, kv, d, s), values (1, layers, kv, s, d), as the products of the action stage read them. For layers
    with cross-attention they have gone through the expert's own projections already. prefix_mask (1, s) float: 1 for
    real tokens.
    """

    def __init__(self, flow: nn.Module):
        super().__init__()
        model = flow.vlm_with_expert
        text = model.get_vlm_model().text_model
        self.words, self.layers, self.state_proj = text.get_input_embeddings(), text.layers, flow.state_proj
        self.kinds = layer_kinds(model)
        self.projections = nn.ModuleList(
            nn.ModuleList(
                [model.lm_expert.layers[expert].self_attn.k_proj, model.lm_expert.layers[expert].self_attn.v_proj]
            )
            for expert, cross in self.kinds.values()
            if cross
        )
        self.norms = layer_norms(text.layers)
        self.size = model.config.text_config.head_dim
        self.groups = model.config.text_config.num_attention_heads // model.config.text_config.num_key_value_heads
        self.rotate = Rotary(self.size)

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, text_mask: Tensor, state: Tensor):
        """Run the language model over the prefix."""
        text = self.words(text_tokens) * math.sqrt(image_tokens.shape[-1])
        x = torch.cat([image_tokens, text, self.state_proj(state)[:, None]], dim=1)
        ones = torch.ones(1, image_tokens.shape[1])
        real = torch.cat([ones, text_mask.float(), torch.ones(1, 1)], dim=1)
        cos, sin = self.rotate(real.long().cumsum(1) - 1)
        scale = self.size**-0.5
        seen = real > 0.5
        length = x.shape[1]
        # Pictures and text see each other whole; they do not see the state, which sees all. Padding sees too, or its
        # rows would be empty; nobody sees it.
        order = torch.arange(length)
        sees = (order[None, :] < length - 1) | (order[:, None] == length - 1)
        added = score_mask(sees[None] & seen[:, None, :], self.groups)
        keys, values, cross_index = [], [], 0
        for index, (layer, (before, behind)) in enumerate(zip(self.layers, self.norms)):
            attention, normed = layer.self_attn, before(x)
            key = turn(heads(attention.k_proj, normed, self.size), cos, sin)
            value = heads(attention.v_proj, normed, self.size)
            if index in self.kinds:
                given = key, value
                if self.kinds[index][1]:
                    given = (heads(p, e.flatten(2), self.size) for p, e in zip(self.projections[cross_index], given))
                    cross_index += 1
                for kept, each in zip((keys, values), given):
                    kept.append(each)
            if index == max(self.kinds):
                break
            query = turn(heads(attention.q_proj, normed, self.size), cos * scale, sin * scale)
            x = x + attention.o_proj(attend(query, as_keys(key), as_values(value), added))
            x = x + layer.mlp(behind(x))
        return torch.stack([as_keys(e) for e in keys], 1), torch.stack([as_values(e) for e in values], 1), real


class Action(nn.Module):
    """One flow step: x (1, H, a) and time (1, H) to v (1, H, a)."""

    def __init__(self, flow: nn.Module):
        super().__init__()
        model, config = flow.vlm_with_expert, flow.config
        self.inward, self.outward = flow.action_in_proj, flow.action_out_proj
        self.mix_in, self.mix_out = flow.action_time_mlp_in, flow.action_time_mlp_out
        self.layers, self.norm = model.lm_expert.layers, Norm(model.lm_expert.norm)
        self.norms = layer_norms(self.layers)
        self.groups = model.config.text_config.num_attention_heads // model.config.text_config.num_key_value_heads
        self.cross = [cross for _, cross in layer_kinds(model).values()]
        self.size = model.config.text_config.head_dim
        self.rotate = Rotary(self.size)
        self.wave = TimeWave(model.expert_hidden_size, config)

    def forward(
        self, x: Tensor, time: Tensor, context_keys: Tensor, context_values: Tensor, prefix_mask: Tensor
    ) -> Tensor:
        """Return the velocity in this project's direction of time."""
        h = self.mix_out(nn.functional.silu(self.mix_in(torch.cat([self.inward(x), self.wave(time)], dim=-1))))
        rows = x.shape[1]
        order = torch.arange(rows)
        prefix = (prefix_mask > 0.5)[:, None, :].expand(-1, rows, -1)
        causal = (order[None, :] <= order[:, None])[None]
        over_prefix, over_both = (
            score_mask(seen, self.groups) for seen in (prefix, torch.cat([prefix, causal], dim=2))
        )
        # In cross-attention queries count from 0, else behind the prefix.
        behind = prefix_mask.long().sum(1, keepdim=True) + order[None]
        scale = self.size**-0.5
        cross_turn = [scale * table for table in self.rotate(order[None])]
        own_turn = self.rotate(behind)
        self_turn = [scale * table for table in own_turn]
        for index, (layer, cross, (before, after)) in enumerate(zip(self.layers, self.cross, self.norms)):
            attention, normed = layer.self_attn, before(h)
            query = heads(attention.q_proj, normed, self.size)
            key, value = context_keys[:, index], context_values[:, index]
            if cross:
                seen = attend(turn(query, *cross_turn), key, value, over_prefix)
            else:
                own = turn(heads(attention.k_proj, normed, self.size), *own_turn)
                key = torch.cat([key, as_keys(own)], dim=3)
                value = torch.cat([value, as_values(heads(attention.v_proj, normed, self.size))], dim=2)
                seen = attend(turn(query, *self_turn), key, value, over_both)
            h = h + attention.o_proj(seen)
            h = h + layer.mlp(after(h))
        return -self.outward(self.norm(h))


def layer_kinds(model: nn.Module) -> dict[int, tuple[int, bool]]:
    """Layers of the language model that have an expert layer: index -> (the expert's index, whether it is cross)."""
    stride = model.num_vlm_layers // model.num_expert_layers
    every, crosses = model.self_attn_every_n_layers, "cross" in model.attention_mode
    return {
        index: (index // stride, crosses and not (every > 0 and index % every == 0))
        for index in range(0, model.num_vlm_layers, stride)
    }


def export(checkpoint: Checkpoint, request: ExportRequest) -> Exported:
    """Build the stages and the fields of policy.yaml that are SmolVLA's own."""
    from vla_runtime.toolchain.export.lerobot_load import load_policy

    config = checkpoint.config
    request.refuse_features(config, {"observation.state"})
    if config.get("adapt_to_pi_aloha"):
        raise UserError("adapt_to_pi_aloha is set: Aloha's joint conversion is not part of a bundle")
    flow = load_policy(checkpoint.path, "smolvla", request.vlm).model
    sizes = set(checkpoint.cameras.values())
    target = config.get("resize_imgs_with_padding")
    if target is None and len(sizes) > 1:
        raise UserError(f"cameras have different sizes {sorted(sizes)}, and the checkpoint does not resize them")
    width, height = target if target is not None else tuple(reversed(next(iter(sizes))))
    refuse_normalised_pictures(checkpoint)
    # (w, h) come in this order; the picture keeps its shape, and padding is above and to the left.
    look = {
        "width": width,
        "height": height,
        "resize": "pad",
        "pad_side": "top_left",
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }
    tokens, cameras = int(config["tokenizer_max_length"]), list(checkpoint.cameras)
    return Exported(
        **flow_fields(config, cameras, look, int(config["num_steps"])),
        sources=[
            StageSource("vision", Vision(flow, height, width), ["images"], ["image_tokens"]),
            StageSource("backbone", Backbone(flow), ["image_tokens", "text_tokens", "text_mask", "state"], CONTEXT),
            StageSource("action", Action(flow), ["x", "time", *CONTEXT], ["v"]),
        ],
        example=flow_example(config, len(cameras), height, width),
        instruction={"max_tokens": tokens, "template": "{instruction}\n"},
        pad_state=int(config["max_state_dim"]),
    )
