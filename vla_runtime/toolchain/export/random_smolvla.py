"""Writes a SmolVLA checkpoint of random weights through LeRobot's own `save_pretrained`: real size, no network.

What the real model's files give, and no registry here has, is made up: weights, statistics, and a tokenizer of a few
words. Sizes are the published ones (arXiv 2506.01844), so time and memory are those of the real model.
Needs the peers' environment (`make setup-peers`).
"""

import json
import sys
from pathlib import Path

STATE = "observation.state"
# SmolVLM2-500M's language model (of which SmolVLA keeps 16 layers) and its vision tower.
REAL_SIZE = {
    "text_config": {
        "model_type": "llama", "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 15, "num_key_value_heads": 5, "head_dim": 64, "vocab_size": 49280,
        "rope_theta": 100000, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "pad_token_id": 2,
    },
    "vision_config": {
        "model_type": "smolvlm_vision", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "image_size": 512, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
    },
    "scale_factor": 4,
    "image_token_id": 49190,
}  # fmt: skip


def write_checkpoint(
    folder: Path,
    vlm: dict,
    *,
    cameras: dict[str, tuple[int, int]],
    words: dict,
    statistics: dict,
    joints: int = 6,
    seed: int = 0,
    **choices,
):
    """Write ``folder`` (config, weights, statistics, tokenizer.json, vlm/config.json); return LeRobot's policy object.

    ``vlm``: the language model's config.json; ``cameras``: (height, width) by name; ``words``: content of
    tokenizer.json; ``statistics``: tensors by feature and kind; ``choices``: further fields of LeRobot's SmolVLAConfig.
    """
    from vla_runtime.toolchain.export.lerobot_load import vlm_from, without_torchvision_library

    without_torchvision_library()
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_pre_post_processors  # noqa: F401 (imports what vlm_from patches)
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy
    from safetensors.torch import save_file

    (folder / "vlm").mkdir(parents=True, exist_ok=True)
    (folder / "vlm/config.json").write_text(json.dumps(vlm), encoding="utf-8")
    vlm_from(folder / "vlm")
    torch.manual_seed(seed)
    inputs = {f"observation.images.{name}": PolicyFeature(FeatureType.VISUAL, (3, *cameras[name])) for name in cameras}
    inputs[STATE] = PolicyFeature(FeatureType.STATE, (joints,))
    config = SmolVLAConfig(
        input_features=inputs, output_features={"action": PolicyFeature(FeatureType.ACTION, (joints,))},
        load_vlm_weights=False, device="cpu", **choices,
    )  # fmt: skip
    policy = SmolVLAPolicy(config).eval()
    policy.save_pretrained(folder)
    flat = {f"{feature}.{kind}": value.clone() for feature, each in statistics.items() for kind, value in each.items()}
    # The processors' own file, written without their pipeline: that one asks a network for the tokenizer.
    save_file(flat, str(folder / "policy_preprocessor_step_5_normalizer_processor.safetensors"))
    (folder / "tokenizer.json").write_text(json.dumps(words), encoding="utf-8")
    return policy


def write_real_size(folder: Path) -> int:
    """Write the 450 M model with one camera and 10 flow steps; return its number of parameters."""
    import torch

    from vla_runtime.toolchain.tiny_bundle import word_tokenizer

    one = {"mean": torch.linspace(-0.3, 0.3, 6), "std": torch.linspace(0.4, 0.9, 6)}
    policy = write_checkpoint(
        folder,
        REAL_SIZE,
        cameras={"front": (480, 640)},
        words=word_tokenizer(),
        statistics={STATE: one, "action": one},
        num_vlm_layers=16,
        num_steps=10,
        resize_imgs_with_padding=(512, 512),
    )
    return sum(parameter.numel() for parameter in policy.parameters())


if __name__ == "__main__":
    print(f"{write_real_size(Path(sys.argv[1])):,} parameters")
