"""Reads the weights of a Hugging Face directory, whole or in shards, AutoAWQ's 4-bit linears included.

Only safetensors are read. A 4-bit linear becomes our symmetric form; what PyTorch then sees is what INT4 represents,
so that exporting, checking and running all mean the same numbers.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.lerobot_checkpoint import Checkpoint
from vla_runtime.toolchain.quantize.autoawq import PARTS, Requantised, group_size, requantise
from vla_runtime.toolchain.quantize.int4 import dequantise

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Weights:
    """``tensors``: float32 by name. ``int4``: the linears that came as 4-bit, by name, where the checkpoint has any."""

    tensors: dict[str, Tensor]
    int4: dict[str, Requantised] = field(default_factory=dict)

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with ``prefix``, without it."""
        return {name.removeprefix(prefix): each for name, each in self.tensors.items() if name.startswith(prefix)}


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors of a directory; UserError when one is missing."""
    index = path / INDEX
    if index.is_file():
        named = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()
        files = [path / name for name in sorted(set(named))]
    else:
        files = [path / "model.safetensors"]
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise UserError(f"{path}: no {missing or 'weights'}; only safetensors are loaded")
    return files


def read_weights(checkpoint: Checkpoint) -> Weights:
    """Read all tensors as float32, and turn AutoAWQ's linears (config.json's ``quantization_config``) into ours."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for file in weight_files(checkpoint.path):
        with safe_open(str(file), "pt") as stream:
            found |= {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (no dict)
    if "quantization_config" not in checkpoint.config:
        return Weights({name: value.float() for name, value in found.items()})
    group = group_size(checkpoint.config)
    int4: dict[str, Requantised] = {}
    for name in sorted(each.removesuffix(".qweight") for each in found if each.endswith(".qweight")):
        parts = {f"{name}.{part}" for part in PARTS} & found.keys()
        made = requantise({each: found.pop(each).numpy() for each in parts}, name, group)
        int4[name] = made
        found[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(dequantise(made.q, made.scales).T))
    if not int4:
        raise UserError(f"{checkpoint.path}: config.json says AutoAWQ, but there is no .qweight among the weights")
    return Weights({name: value.float() for name, value in found.items()}, int4)


def load_into(module: torch.nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Load ``tensors`` into ``module``; UserError naming what is missing, left over, or of another shape."""
    own = module.state_dict()
    wrong = [name for name, value in tensors.items() if name in own and own[name].shape != value.shape]
    if wrong:
        name = wrong[0]
        raise UserError(f"{where}: '{name}' is {list(tensors[name].shape)}, config.json needs {list(own[name].shape)}")
    missing, unexpected = module.load_state_dict(tensors, strict=False)
    # Not weights: some writers saved the table of rotary frequencies too. Tied heads are saved once.
    unexpected = [name for name in unexpected if not name.endswith("rotary_emb.inv_freq")]
    tied = getattr(getattr(module, "config", None), "tie_word_embeddings", False)
    missing = [name for name in missing if not (tied and name == "lm_head.weight")]
    if missing or unexpected:
        raise UserError(f"{where}: does not fit config.json: missing {missing[:3]}, unexpected {unexpected[:3]}")
