"""OpenVLA (arXiv 2406.09246): one picture and a prompt to action tokens, from its Hugging Face directory.

Three stages: `vision` (timm's towers, fused where there are two, and the projector), `backbone` (prefill: first text
token, picture, rest of the prompt) and `action_decode`. The directory's own code is not run: timm and transformers
build the parts that config.json names, and the weights go in by name. Needs the peers' environment.
"""

import json

import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.hf_weights import load_into, read_weights
from vla_runtime.toolchain.export.lerobot_checkpoint import Checkpoint
from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library
from vla_runtime.toolchain.export.llama_actions import (
    CACHE,
    DECODED,
    Core,
    Decode,
    Prefill,
    example_text,
    llama,
    token_fields,
)
from vla_runtime.toolchain.export.request import Exported, ExportRequest
from vla_runtime.toolchain.export.stages import StageSource

TOWERS = ("featurizer", "fused_featurizer")
# Of DINOv2 and SigLIP, in OpenVLA's order, where preprocessor_config.json does not say.
MEANS = ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))
STDS = ((0.229, 0.224, 0.225), (0.5, 0.5, 0.5))
# The space at the end is a token of its own in Llama's vocabulary, which OpenVLA was trained to read last.
TEMPLATE = "In: What action should the robot take to {instruction}?\nOut: "


class Projector(nn.Module):
    """Features of the towers to the language model's width: two layers, or three behind fused towers."""

    def __init__(self, features: int, width: int, fused: bool):
        super().__init__()
        inner = 4 * features if fused else width
        self.fc1, self.fc2 = nn.Linear(features, inner), nn.Linear(inner, width)
        self.fc3 = nn.Linear(width, width) if fused else None

    def forward(self, x: Tensor) -> Tensor:
        """x (1, n, features) -> (1, n, width)."""
        x = self.fc2(nn.functional.gelu(self.fc1(x)))
        return x if self.fc3 is None else self.fc3(nn.functional.gelu(x))


class Vision(nn.Module):
    """images (1, 3, h, w), normalised for the first tower -> image_tokens (1, n, width)."""

    def __init__(self, towers: list[nn.Module], projector: Projector, means: list, stds: list):
        super().__init__()
        self.towers, self.projector = nn.ModuleList(towers), projector
        for name, values in (("means", means), ("stds", stds)):
            self.register_buffer(name, torch.tensor(values)[:, None, :, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Each tower sees the picture in its own normalisation; its last block but one gives the patches."""
        pixels = images * self.stds[0] + self.means[0]
        seen = []
        for index, tower in enumerate(self.towers):
            own = images if index == 0 else (pixels - self.means[index]) / self.stds[index]
            seen.append(tower.get_intermediate_layers(own, n=[len(tower.blocks) - 2])[0])
        return self.projector(torch.cat(seen, dim=2))


class PicturePrefill(Prefill):
    """Prefill with the picture behind the first token of the text (the beginning-of-sequence token)."""

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, text_mask: Tensor):
        """Lay out the prompt and read it; see ``Prefill.read``."""
        words, mask = self.core.words(text_tokens), text_mask.float()
        x = torch.cat([words[:, :1], image_tokens, words[:, 1:]], dim=1)
        return self.read(x, torch.cat([mask[:, :1], torch.ones(image_tokens.shape[:2]), mask[:, 1:]], dim=1))


def export(checkpoint: Checkpoint, request: ExportRequest) -> Exported:
    """Build the stages. `max_prompt_tokens` and `prompt_template` may be added to config.json (64; OpenVLA's)."""
    config, weights = checkpoint.config, read_weights(checkpoint)
    text = config["text_config"]
    model = llama(checkpoint, text, weights.under("language_model."))
    # Ids beyond this only round the size of the table up; actions are the last ids before them.
    vocabulary = model.config.vocab_size - int(config.get("pad_to_multiple_of", 64))
    bins, tokens = int(config.get("n_action_bins", 256)), int(config.get("max_prompt_tokens", 64))
    more = len(request.joints) - 1
    towers = _towers(checkpoint, weights)
    width = sum(tower.embed_dim for tower in towers)
    projector = Projector(width, model.config.hidden_size, len(towers) > 1)
    load_into(projector, weights.under("projector."), checkpoint.path)
    means, stds = _normalisation(checkpoint, len(towers))
    height, across = towers[0].patch_embed.img_size
    core = Core(model, bins, vocabulary)
    prompt = ["image_tokens", "text_tokens", "text_mask"]
    generator = torch.Generator().manual_seed(1)
    return Exported(
        cameras=[{"name": "front", "width": across, "height": height, "mean": means[0], "std": stds[0]}],
        sources=[
            StageSource("vision", Vision(towers, projector, means, stds), ["images"], ["image_tokens"]),
            StageSource("backbone", PicturePrefill(core, more), prompt, ["logits", *CACHE]),
            StageSource("action_decode", Decode(core, more), ["token", "step", *CACHE], DECODED),
        ],
        example={
            "images": torch.randn(1, 3, height, across, generator=generator),
            **example_text(vocabulary, tokens, more),
        },
        instruction={"max_tokens": tokens, "template": config.get("prompt_template", TEMPLATE)},
        **token_fields(config, request, bins, weights),
    )


def _towers(checkpoint: Checkpoint, weights) -> list[nn.Module]:
    """Build and load the towers that config.json names (`timm_model_ids`, `image_sizes`)."""
    without_torchvision_library()
    import timm

    names, sizes = checkpoint.config["timm_model_ids"], checkpoint.config["image_sizes"]
    if len(set(sizes)) > 1:
        raise UserError(f"{checkpoint.path}/config.json: image_sizes {sizes} differ; the towers share one picture")
    towers = []
    for part, name, size in zip(TOWERS, names, sizes):
        try:
            tower = timm.create_model(name, pretrained=False, num_classes=0, img_size=size)
        except RuntimeError as error:
            raise UserError(f"{checkpoint.path}/config.json: timm_model_ids: {error}") from None
        # Layer scale is saved under this name, because transformers once renamed 'gamma' at loading.
        found = {
            each.replace(".scale_factor", ".gamma"): value
            for each, value in weights.under(f"vision_backbone.{part}.").items()
        }
        # The pooling head is left over: patches come from the last block but one.
        found = {each: value for each, value in found.items() if not each.startswith("attn_pool.")}
        tower.attn_pool = None
        load_into(tower, found, checkpoint.path)
        towers.append(tower.eval())
    return towers


def _normalisation(checkpoint: Checkpoint, count: int) -> tuple[list, list]:
    """Return means and standard deviations by tower, from preprocessor_config.json where there is one."""
    file = checkpoint.path / "preprocessor_config.json"
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    means, stds = content.get("means", MEANS)[:count], content.get("stds", STDS)[:count]
    if len(means) != count or len(stds) != count:
        raise UserError(f"{file}: means and stds are for {len(means)} towers, config.json names {count}")
    return [list(each) for each in means], [list(each) for each in stds]
