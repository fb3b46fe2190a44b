"""Autoregressive action heads on a Llama backbone, from a Hugging Face directory; with pictures: openvla.py.

An action is as many tokens as there are joints, drawn greedily from the last ``bins`` ids of the vocabulary: id
vocabulary - 1 - b is bin b, rising in value. The head and the embeddings are sliced to those rows. The prompt is
padded on the right to a fixed length; padding is masked and takes no position.
"""

import numpy as np
import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.attention import (
    Norm,
    as_keys,
    as_values,
    attend,
    layer_norms,
    queries_keys_values,
    score_mask,
    turn,
)
from vla_runtime.toolchain.export.hf_weights import Weights, load_into, read_weights
from vla_runtime.toolchain.export.int4_stages import Int4Stages
from vla_runtime.toolchain.export.lerobot_checkpoint import RADIANS_PER, Checkpoint
from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library
from vla_runtime.toolchain.export.request import Exported, ExportRequest
from vla_runtime.toolchain.export.stages import StageSource


class Core(nn.Module):
    """The parts of a Llama that both stages share. ``vocabulary``: number of ids, without those that only pad it."""

    def __init__(self, model: nn.Module, bins: int, vocabulary: int):
        super().__init__()
        config = model.config
        if bins > vocabulary:
            raise UserError(f"config.json: {bins} bins do not fit the vocabulary of {vocabulary}")
        self.words, self.layers = model.model.embed_tokens, model.model.layers
        rows = torch.arange(vocabulary - 1, vocabulary - 1 - bins, -1)
        self.head = nn.Parameter(model.lm_head.weight.detach()[rows].clone())
        self.bin_words = nn.Parameter(self.words.weight.detach()[rows].clone())
        self.norm = Norm(model.model.norm)
        self.norms = layer_norms(self.layers)
        self.size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.register_buffer("frequency", model.model.rotary_emb.inv_freq.float().clone())

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``turn`` reads for positions (1, s)."""
        angle = (positions[..., None].float() * self.frequency)[:, :, None, :]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)

    def project(self, index: int, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (scaled), keys and values of one layer, rotated."""
        normed = self.norms[index][0](x)
        query, key, value = queries_keys_values(self.layers[index].self_attn, normed, self.size)
        scale = self.size**-0.5
        return turn(query, cos * scale, sin * scale), turn(key, cos, sin), value

    def finish(self, index: int, x: Tensor, seen: Tensor) -> Tensor:
        """The rest of one layer."""
        x = x + self.layers[index].self_attn.o_proj(seen)
        return x + self.layers[index].mlp(self.norms[index][1](x))


class Prefill(nn.Module):
    """Prompt to the first token's logits and the cache, with room for ``more`` further tokens."""

    def __init__(self, core: Core, more: int):
        super().__init__()
        self.core, self.more = core, more

    def forward(self, text_tokens: Tensor, text_mask: Tensor):
        """Read text alone; see ``read``."""
        return self.read(self.core.words(text_tokens), text_mask.float())

    def read(self, x: Tensor, mask: Tensor):
        """Return logits (1, bins), keys and values (1, layers, s + more, kv, d), mask (1, s). x (1, s, width)."""
        core = self.core
        cos, sin = core.angles((mask.cumsum(1) - 1).clamp(min=0))
        order = torch.arange(x.shape[1])
        added = score_mask((order[None, :] <= order[:, None])[None] & (mask > 0.5)[:, None, :], core.groups)
        keys, values = [], []
        for index in range(len(core.layers)):
            query, key, value = core.project(index, x, cos, sin)
            x = core.finish(index, x, attend(query, as_keys(key), as_values(value), added))
            keys.append(key)
            values.append(value)
        last = (mask * torch.arange(1, x.shape[1] + 1)).argmax(1, keepdim=True)
        final = torch.gather(core.norm(x), 1, last[..., None].expand(-1, -1, x.shape[-1]))[:, 0]
        room = (0, 0, 0, 0, 0, self.more)
        caches = (nn.functional.pad(torch.stack(each, 1), room) for each in (keys, values))
        return final @ core.head.T, *caches, mask


class Decode(nn.Module):
    """One further token: bin ``token`` (1, 1) at ``step`` (1,) after the first."""

    def __init__(self, core: Core, more: int):
        super().__init__()
        self.core, self.more = core, more

    def forward(self, token: Tensor, step: Tensor, context_keys: Tensor, context_values: Tensor, prefix_mask: Tensor):
        """Return logits (1, bins) and the new rows of the cache (1, layers, 1, kv, d)."""
        core = self.core
        x = core.bin_words[token]
        cos, sin = core.angles(prefix_mask.sum(1, keepdim=True) + step[None].float())
        earlier = torch.arange(self.more)[None] < step[:, None]
        seen = torch.cat([prefix_mask > 0.5, earlier, torch.ones(1, 1, dtype=torch.bool)], dim=1)
        added = score_mask(seen[:, None, :], core.groups)
        keys, values = [], []
        for index in range(len(core.layers)):
            query, key, value = core.project(index, x, cos, sin)
            whole_key = torch.cat([context_keys[:, index], key], dim=1)
            whole_value = torch.cat([context_values[:, index], value], dim=1)
            x = core.finish(index, x, attend(query, as_keys(whole_key), as_values(whole_value), added))
            keys.append(key)
            values.append(value)
        return core.norm(x)[:, 0] @ core.head.T, torch.stack(keys, 1), torch.stack(values, 1)


def export(checkpoint: Checkpoint, request: ExportRequest) -> Exported:
    """Build the stages; `action_bins` and `max_prompt_tokens` are read from config.json (256 and 64 by default)."""
    config, weights = checkpoint.config, read_weights(checkpoint)
    model = llama(checkpoint, config, weights.tensors)
    bins, tokens = int(config.get("action_bins", 256)), int(config.get("max_prompt_tokens", 64))
    more = len(request.joints) - 1
    core = Core(model, bins, model.config.vocab_size)
    return Exported(
        cameras=[],
        sources=[
            StageSource("backbone", Prefill(core, more), ["text_tokens", "text_mask"], ["logits", *CACHE]),
            StageSource("action_decode", Decode(core, more), ["token", "step", *CACHE], DECODED),
        ],
        example=example_text(model.config.vocab_size, tokens, more),
        instruction={"max_tokens": tokens, "template": "{instruction}"},
        **token_fields(config, request, bins, weights),
    )


CACHE = ["context_keys", "context_values", "prefix_mask"]
DECODED = ["logits", "new_keys", "new_values"]


def llama(checkpoint: Checkpoint, config: dict, tensors: dict[str, Tensor]) -> nn.Module:
    """Build transformers' Llama of ``config`` (a parsed config.json, or its text_config) and load ``tensors``."""
    without_torchvision_library()
    from transformers import LlamaConfig, LlamaForCausalLM

    if config.get("rope_scaling"):
        raise UserError(f"{checkpoint.path}/config.json: rope_scaling is not supported")
    # Quantised linears have become plain ones already; transformers must not look for a quantiser's package.
    own = {name: value for name, value in config.items() if name not in ("quantization_config", "dtype", "torch_dtype")}
    model = LlamaForCausalLM(LlamaConfig(**own)).eval()
    load_into(model, tensors, checkpoint.path)
    if model.config.tie_word_embeddings:
        model.tie_weights()
    return model


def example_text(vocabulary: int, tokens: int, more: int) -> dict[str, Tensor]:
    """Return a prompt and a token, for writing the stages."""
    generator = torch.Generator().manual_seed(0)
    return {
        "text_tokens": torch.randint(0, vocabulary, (1, tokens), generator=generator),
        "text_mask": torch.arange(tokens)[None] < tokens // 2,
        "token": torch.tensor([[3]]),
        "step": torch.tensor([min(1, more)]),
    }


def token_fields(config: dict, request: ExportRequest, bins: int, weights: Weights) -> dict:
    """Return the fields of ``Exported`` that all families of action tokens share."""
    return {
        "family": "tokens",
        "horizon": 1,
        "sampler": {"kind": "tokens", "noise": "none", "bins": bins},
        "action_scale": _scale(config, request),
        "int4": Int4Stages(weights.int4) if weights.int4 else None,
    }


def _scale(config: dict, request: ExportRequest) -> tuple[list[float], list[float]] | None:
    """Mean and std (rad) from OpenVLA's ``norm_stats``: tokens span the first to the 99th percentile of each joint."""
    stats = config.get("norm_stats")
    if not stats:
        return None
    action = next(iter(stats.values()))["action"]
    if len(action["q01"]) != len(request.joints):
        raise UserError(f"--joints names {len(request.joints)} joints, norm_stats has {len(action['q01'])} values")
    factor = RADIANS_PER[request.unit]
    low, high = (np.asarray(action[name], float) for name in ("q01", "q99"))
    return (factor * (low + high) / 2).tolist(), (factor * np.maximum(high - low, 1e-8) / 2).tolist()
