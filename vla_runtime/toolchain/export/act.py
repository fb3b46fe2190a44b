"""LeRobot's ACT (Zhao et al. 2023, arXiv 2304.13705): pictures and state to a whole chunk at once.

Two stages: `vision` (ResNet features of every camera as tokens) and `action` (transformer, latent zero). LeRobot
itself builds the model and loads the weights.
"""

import torch
from torch import Tensor, nn

from vla_runtime.toolchain.export.lerobot_checkpoint import Checkpoint
from vla_runtime.toolchain.export.request import Exported, ExportRequest
from vla_runtime.toolchain.export.stages import StageSource


class Vision(nn.Module):
    """images (cameras, 3, h, w) -> image_tokens (1, n, dim), image_positions (1, n, dim)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.backbone, self.project = model.backbone, model.encoder_img_feat_input_proj
        self.positions = model.encoder_cam_feat_pos_embed

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Cameras go through the backbone as one batch: its norms are frozen, so nothing mixes."""
        features = self.backbone(images)["feature_map"]
        positions = self.positions(features).expand(images.shape[0], -1, -1, -1)
        tokens = self.project(features)
        width = tokens.shape[1]
        return (
            tokens.flatten(2).transpose(1, 2).reshape(1, -1, width),
            positions.flatten(2).transpose(1, 2).reshape(1, -1, width),
        )


class Action(nn.Module):
    """image tokens and state -> actions (1, H, n)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
        for unused in ("backbone", "encoder_img_feat_input_proj", "vae_encoder"):
            if hasattr(model, unused):
                delattr(model, unused)

    def forward(self, image_tokens: Tensor, image_positions: Tensor, state: Tensor) -> Tensor:
        """Run encoder and decoder with the latent at its prior's mean, as at inference."""
        model, config = self.model, self.model.config
        latent = torch.zeros(1, config.latent_dim)
        own = torch.stack([model.encoder_latent_input_proj(latent), model.encoder_robot_state_input_proj(state)])
        tokens = torch.cat([own, image_tokens.transpose(0, 1)])
        places = torch.cat([model.encoder_1d_feature_pos_embed.weight[:, None], image_positions.transpose(0, 1)])
        memory = model.encoder(tokens, pos_embed=places)
        queries = torch.zeros(config.chunk_size, 1, config.dim_model)
        decoded = model.decoder(
            queries, memory, encoder_pos_embed=places, decoder_pos_embed=model.decoder_pos_embed.weight[:, None]
        )
        return model.action_head(decoded.transpose(0, 1))


def export(checkpoint: Checkpoint, request: ExportRequest) -> Exported:
    """Build the stages and the fields of policy.yaml that are ACT's own."""
    from vla_runtime.toolchain.export.lerobot_load import load_policy

    config = checkpoint.config
    request.refuse_features(config, {"observation.state"})
    policy = load_policy(checkpoint.path, "act")
    cameras = []
    for name, (height, width) in checkpoint.cameras.items():
        found = checkpoint.normalisation("VISUAL", checkpoint.feature(name))
        camera = {"name": name, "width": width, "height": height}
        if found is not None:
            camera |= {"mean": [float(v) for v in found[0]], "std": [float(v) for v in found[1]]}
        cameras.append(camera)
    height, width = next(iter(checkpoint.cameras.values()))
    example = {
        "images": torch.randn(len(cameras), 3, height, width, generator=torch.Generator().manual_seed(0)),
        "state": torch.randn(1, checkpoint.width("observation.state"), generator=torch.Generator().manual_seed(1)),
    }
    vision = Vision(policy.model)
    sources = [
        StageSource("vision", vision, ["images"], ["image_tokens", "image_positions"]),
        StageSource("action", Action(policy.model), ["image_tokens", "image_positions", "state"], ["actions"]),
    ]
    return Exported(
        family="direct",
        cameras=cameras,
        horizon=int(config["chunk_size"]),
        sampler={"kind": "direct", "noise": "none"},
        sources=sources,
        example=example,
    )
