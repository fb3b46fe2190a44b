"""The PyTorch model's own answers, kept in the bundle: parity holds every engine to them (reference.safetensors)."""

from __future__ import annotations

import numpy as np
import torch

from vla_runtime.policy.bundle import Bundle
from vla_runtime.sim.scene import CAMERAS
from vla_runtime.toolchain.bundle_files import list_file
from vla_runtime.toolchain.observations import REFERENCE_FILE, ObservationSet, save_observations
from vla_runtime.toolchain.train_demo.export import ActionStage, BackboneStage, VisionStage
from vla_runtime.toolchain.train_demo.model import DemoVla
from vla_runtime.toolchain.train_demo.pool import normalise
from vla_runtime.toolchain.train_demo.text import build_tokenizer, encode
from vla_runtime.toolchain.train_demo.train import FLOW_STEPS

REFERENCE_SEED = 3_000_000  # episodes of the answers: apart from those of training, calibration and evaluation
STAGE_ROWS = 2  # observations of which every stage's tensors are kept: 0.9 MB each


@torch.inference_mode()
def answer(model: DemoVla, bundle: Bundle, asked: ObservationSet) -> ObservationSet:
    """Return ``asked`` with the model's chunks (rad), and the tensors of its stages for the first STAGE_ROWS.

    The model runs in PyTorch with training's own preprocessing; only the noise is drawn as the runtime draws it.
    """
    mean, std = (np.asarray(value) for value in (bundle.policy.action.mean, bundle.policy.action.std))
    vision, backbone, action = (stage(model.eval().float()) for stage in (VisionStage, BackboneStage, ActionStage))
    tokenizer, actions, kept = build_tokenizer(), [], []
    for seed, observation in zip(asked.seeds, asked.observations, strict=True):
        pictures = np.stack([observation.images[camera] for camera in CAMERAS])
        tokens, mask = (torch.from_numpy(part)[None] for part in encode(tokenizer, observation.instruction))
        images = normalise(torch.from_numpy(pictures)[None])[0]
        state = torch.from_numpy((observation.state - mean) / std).float()[None]
        image_tokens, features = vision(images)
        keys, values, bias, condition = backbone(image_tokens, features, tokens, mask, state)
        shape = (1, model.config.horizon, model.config.joints)
        x = torch.from_numpy(np.random.default_rng(int(seed)).standard_normal(shape, dtype=np.float32))
        for step in range(FLOW_STEPS):
            time = torch.full(shape[:2], step / FLOW_STEPS)
            v = action(x, time, keys, values, bias, condition, state)
            if step == 0 and len(kept) < STAGE_ROWS:
                names = {"images": images, "text_tokens": tokens, "text_mask": mask, "state": state}
                names |= {"image_tokens": image_tokens, "image_features": features}
                names |= {"context_keys": keys, "context_values": values, "context_bias": bias, "condition": condition}
                names |= {"x": x, "time": time, "v": v}
                kept.append({name: value.numpy().copy() for name, value in names.items()})
            x = x + v / FLOW_STEPS
        actions.append(x[0].numpy().astype(np.float64) * std + mean)
    tensors = {name: np.stack([each[name] for each in kept]) for name in kept[0]}
    return ObservationSet(asked.observations, asked.source, asked.seeds, np.stack(actions), tensors)


def write_reference(model: DemoVla, bundle: Bundle, asked: ObservationSet) -> Bundle:
    """Write the answers into the bundle, listed with its other files; return the bundle that has them."""
    made_by = f"vla train-demo, PyTorch {torch.__version__}"
    save_observations(bundle.path / REFERENCE_FILE, answer(model, bundle, asked), made_by)
    return list_file(bundle.path, REFERENCE_FILE)
