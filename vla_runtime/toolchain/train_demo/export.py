"""Writes a trained checkpoint as a bundle: three ONNX stages with static shapes, the tokenizer and policy.yaml."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import yaml
from torch import Tensor, nn

from vla_runtime.sim.scene import CAMERAS, JOINTS
from vla_runtime.sim.task import COLOURS
from vla_runtime.toolchain.train_demo.model import DemoVla
from vla_runtime.toolchain.train_demo.pool import IMAGE_MEAN, IMAGE_STD, MAX_DELAY
from vla_runtime.toolchain.train_demo.text import build_tokenizer, encode
from vla_runtime.toolchain.train_demo.train import FLOW_STEPS

OPSET = 21
TOLERANCE = 1e-4


class VisionStage(nn.Module):
    """images (cameras, 3, h, w) -> image_tokens (1, n, width), image_features (1, cameras, cells, features)."""

    def __init__(self, model: DemoVla):
        super().__init__()
        self.vision = model.vision

    def forward(self, images: Tensor):
        """Return image_tokens and image_features."""
        return self.vision(images[None])


class BackboneStage(nn.Module):
    """Image, text and state to what the expert reads: keys and values of every layer, and three small tensors."""

    def __init__(self, model: DemoVla):
        super().__init__()
        self.backbone = model.backbone

    def forward(
        self, image_tokens: Tensor, image_features: Tensor, text_tokens: Tensor, text_mask: Tensor, state: Tensor
    ):
        """Return keys and values (1, layers, heads, sequence, head), the mask's bias, and the condition."""
        keys, values, bias, condition, _, _ = self.backbone(image_tokens, image_features, text_tokens, text_mask, state)
        return torch.stack(keys, 1), torch.stack(values, 1), bias, condition


class ActionStage(nn.Module):
    """One evaluation of the flow's velocity."""

    def __init__(self, model: DemoVla):
        super().__init__()
        self.action = model.action

    def forward(
        self, x: Tensor, time: Tensor, keys: Tensor, values: Tensor, bias: Tensor, condition: Tensor, state: Tensor
    ):
        """Return v."""
        return self.action(x, time, keys.unbind(1), values.unbind(1), bias, condition, state)


def example_inputs(model: DemoVla) -> dict[str, Tensor]:
    """Return one observation's tensors, seeded."""
    c, generator = model.config, torch.Generator().manual_seed(0)
    tokens, mask = encode(build_tokenizer(), "pick up the red cube")
    return {
        "images": torch.randn(c.cameras, 3, c.image, c.image, generator=generator),
        "text_tokens": torch.from_numpy(tokens)[None],
        "text_mask": torch.from_numpy(mask)[None],
        "state": torch.randn(1, c.joints, generator=generator),
        "x": torch.randn(1, c.horizon, c.joints, generator=generator),
        "time": torch.full((1, c.horizon), 0.4),
    }


def export_stages(model: DemoVla, folder: Path) -> dict[str, dict]:
    """Write vision.onnx, backbone.onnx and action.onnx; return their entries of policy.yaml.

    Each is run on ONNX Runtime and held to PyTorch: RuntimeError when they differ by more than 1e-4.
    """
    model = model.eval().float()
    known = example_inputs(model)
    stages = {
        "vision": (VisionStage(model), ["images"], ["image_tokens", "image_features"]),
        "backbone": (
            BackboneStage(model),
            ["image_tokens", "image_features", "text_tokens", "text_mask", "state"],
            ["context_keys", "context_values", "context_bias", "condition"],
        ),
        "action": (
            ActionStage(model),
            ["x", "time", "context_keys", "context_values", "context_bias", "condition", "state"],
            ["v"],
        ),
    }
    entries = {}
    for name, (module, inputs, outputs) in stages.items():
        module.eval()
        given = tuple(known[key] for key in inputs)
        with torch.no_grad():
            made = module(*given)
        made = dict(zip(outputs, made if isinstance(made, tuple) else (made,), strict=True))
        path = folder / f"{name}.onnx"
        torch.onnx.export(
            module, given, path, input_names=inputs, output_names=outputs, opset_version=OPSET, dynamo=True,
            external_data=False, optimize=True, verbose=False,
        )  # fmt: skip
        strip(path)
        verify(path, {key: known[key] for key in inputs}, made)
        known |= made
        entries[name] = {
            "file": path.name,
            "precision": "fp32",
            "inputs": {key: _tensor(known[key]) for key in inputs},
            "outputs": {key: _tensor(made[key]) for key in outputs},
        }
    return entries


def strip(path: Path) -> None:
    """Drop the exporter's notes (they hold paths of this machine) and check the model."""
    model = onnx.load(path)
    model.doc_string = ""
    del model.metadata_props[:]
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def verify(path: Path, inputs: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Hold ONNX Runtime's outputs to PyTorch's."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    got = session.run(list(expected), {key: value.numpy() for key, value in inputs.items()})
    for (key, want), have in zip(expected.items(), got, strict=True):
        worst = float(np.abs(have - want.numpy()).max())
        if not worst <= TOLERANCE:
            raise RuntimeError(f"{path.name}: '{key}' differs from PyTorch by {worst:.2e}, allowed {TOLERANCE:.0e}")


def _tensor(value: Tensor) -> dict:
    return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}


def write_bundle(
    model: DemoVla, mean: np.ndarray, std: np.ndarray, folder: Path, limits: Path, provenance: dict
) -> None:
    """Write the whole bundle to ``folder``. ``limits``: the robot's YAML (config/robots/so101_sim.yaml)."""
    folder.mkdir(parents=True, exist_ok=True)
    stages = export_stages(model, folder)
    build_tokenizer().save(str(folder / "tokenizer.json"))
    joints = yaml.safe_load(limits.read_text(encoding="utf-8"))["joints"]
    numbers = {"mean": [round(float(v), 6) for v in mean], "std": [round(float(v), 6) for v in std]}
    camera = {"width": model.config.image, "height": model.config.image, "resize": "stretch"}
    camera |= {"mean": [IMAGE_MEAN] * 3, "std": [IMAGE_STD] * 3}
    policy = {
        "format": "vla-bundle/1",
        "name": "demo-so101",
        "family": "flow",
        "licence": "Apache-2.0",
        "description": f"Lifts the {', '.join(COLOURS[:-1])} or {COLOURS[-1]} cube in the demo scene.",
        "dt_s": 0.02,
        "horizon": model.config.horizon,
        "cameras": [{"name": name, **camera} for name in CAMERAS],
        "state": {"joints": list(JOINTS), **numbers},
        "action": {"space": "joint_position", "joints": list(JOINTS), "discrete": ["gripper"], **numbers},
        "limits": {
            name: {key: joints[name][key] for key in ("lower", "upper", "velocity", "acceleration", "jerk")}
            for name in JOINTS
        },
        "instruction": {
            "tokenizer": "tokenizer.json",
            "max_tokens": model.config.text_tokens,
            "default": "pick up the red cube",
        },
        "sampler": {"kind": "flow", "steps": FLOW_STEPS, "noise": "normal", "time": "noise_to_clean"},
        "rtc": {"prefix_trained": True, "max_delay_steps": MAX_DELAY},
        "stages": stages,
        "files": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in ("vision.onnx", "backbone.onnx", "action.onnx", "tokenizer.json")
        },
        "provenance": provenance,
    }
    text = yaml.safe_dump(policy, sort_keys=False, width=120)
    (folder / "policy.yaml").write_text(text, encoding="utf-8")
