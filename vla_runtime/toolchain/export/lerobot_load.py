"""Loads LeRobot policies from a directory, without a network.

Needs the peers' environment (`make setup-peers`; for pi0 and pi0.5 `make setup-peers-pi`).
"""

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from vla_runtime.errors import UserError

PI = ("pi0", "pi05")
PALIGEMMA = "model.paligemma_with_expert.paligemma"


def load_policy(path: Path, kind: str, vlm: Path | None = None):
    """Return LeRobot's own policy object, on the CPU, in evaluation mode.

    ``vlm``: directory with the config.json of SmolVLA's vision-language model (nothing else of it is needed).
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    without_torchvision_library()
    if kind == "act":
        from lerobot.policies.act.configuration_act import ACTConfig
        from lerobot.policies.act.modeling_act import ACTPolicy

        return _build(path, ACTPolicy, ACTConfig, {"pretrained_backbone_weights": None})
    if kind in PI:
        policy_class, config_class = _pi(kind)
        return _build(path, policy_class, config_class, {"dtype": "float32", "compile_model": False}, _pi_names)
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    vlm_from(vlm or path / "vlm")
    return _build(path, SmolVLAPolicy, SmolVLAConfig, {"load_vlm_weights": False, "compile_model": False})


def _pi(kind: str) -> tuple[type, type]:
    try:
        import_module("lerobot.policies.pi_gemma")
    except ImportError:
        raise UserError(f"'{kind}' needs LeRobot 0.6 and transformers 5: make setup-peers-pi") from None
    policy = import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    config = import_module(f"lerobot.policies.{kind}.configuration_{kind}")
    return getattr(policy, f"{kind.upper()}Policy"), getattr(config, f"{kind.upper()}Config")


def _pi_names(tensors: dict) -> dict:
    """Bring the names that checkpoints of openpi have to LeRobot's: a prefix, and the embeddings that are tied."""
    named = {name if name.startswith("model.") else f"model.{name}": value for name, value in tensors.items()}
    words = f"{PALIGEMMA}.model.language_model.embed_tokens.weight"
    if words not in named and f"{PALIGEMMA}.lm_head.weight" in named:
        named[words] = named[f"{PALIGEMMA}.lm_head.weight"]
    return named


def _build(path: Path, policy_class, config_class, changes: dict, rename: Callable[[dict], dict] = dict):
    from lerobot.configs.policies import PreTrainedConfig
    from safetensors.torch import load_file

    config = PreTrainedConfig.from_pretrained(str(path), local_files_only=True)
    if not isinstance(config, config_class):
        raise UserError(f"{path}/config.json: type is '{config.type}', not what was asked for")
    for name, value in {**changes, "device": "cpu"}.items():
        setattr(config, name, value)
    policy = policy_class(config)
    weights = path / "model.safetensors"
    if not weights.is_file():
        raise UserError(f"{path}: no model.safetensors; only safetensors are loaded")
    missing, unexpected = policy.load_state_dict(rename(load_file(str(weights))), strict=False)
    # Tied weights are saved once.
    missing = [name for name in missing if not name.endswith("lm_head.weight")]
    if missing or unexpected:
        raise UserError(f"{weights}: does not fit config.json: missing {missing[:3]}, unexpected {unexpected[:3]}")
    return policy.eval().float()


def vlm_from(directory: Path) -> None:
    """Let LeRobot's constructor read the vision-language model's configuration from ``directory``."""
    from lerobot.policies.smolvla import smolvlm_with_expert as module
    from transformers import SmolVLMConfig

    file = directory / "config.json"
    if not file.is_file():
        raise UserError(
            f"{file} is missing: SmolVLA needs the configuration of its vision-language model; give --vlm DIR"
        )
    config = SmolVLMConfig(**_without_type(json.loads(file.read_text(encoding="utf-8"))))
    ids = _special_tokens(directory)
    processor = SimpleNamespace(tokenizer=SimpleNamespace(**ids))
    module.AutoConfig = SimpleNamespace(from_pretrained=lambda *_args, **_more: config)
    module.AutoProcessor = SimpleNamespace(from_pretrained=lambda *_args, **_more: processor)


def _without_type(content: dict) -> dict:
    return {name: value for name, value in content.items() if name not in ("model_type", "architectures")}


def _special_tokens(directory: Path) -> dict[str, int]:
    """Ids of the tokens round an image; they matter only to checkpoints with ``add_image_special_tokens``."""
    file = directory / "tokenizer.json"
    added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", []) if file.is_file() else []
    ids = {each["content"]: each["id"] for each in added}
    return {
        "fake_image_token_id": ids.get("<fake_token_around_image>", 0),
        "global_image_token_id": ids.get("<global-img>", 0),
    }


def without_torchvision_library() -> None:
    """Declare the two operators whose library a CPU-only torchvision lacks; nothing here calls them."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list = []  # a library's operators live as long as its object
