"""Writes a few-kilobyte bundle with the demo's contract, for tests and for trying the nodes without a trained model.

It is a real flow policy in form (vision, backbone, action; two cameras, instruction, six joints of an SO-101), but its
weights are drawn from a seed. Its chunks start at the observed joints and go smoothly part of the way to a pose that
depends on the pictures and the instruction, so that an arm may follow them.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.policy.bundle import load_bundle, sha256_of
from vla_runtime.policy.bundle_model import FORMAT
from vla_runtime.toolchain.observations import random_observations
from vla_runtime.toolchain.parity.budgets import load_budgets
from vla_runtime.toolchain.parity.prove import Request, prove
from vla_runtime.toolchain.parity.record import write_record

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
LOWER = (-1.91, -1.74, -1.69, -1.65, -2.74, -0.17)
UPPER = (1.91, 1.74, 1.69, 1.65, 2.84, 1.74)
WORDS = (
    "[PAD]",
    "[UNK]",
    "pick",
    "up",
    "the",
    "red",
    "green",
    "blue",
    "yellow",
    "cube",
    "lift",
    "grasp",
    "take",
    "block",
)
SIZE, TOKENS, STEPS = 32, 16, 8


def write_tiny_bundle(
    directory: str | Path, *, seed: int = 0, horizon: int = 50, dt_s: float = 0.02, width: int = 16, proven: bool = True
) -> Path:
    """Write the bundle into ``directory`` (made if need be) and return its path. Same arguments, same bytes.

    ``width`` is the backbone's hidden width; 128 or 256 make it fit group-128 INT4. ``proven``: measure it against
    itself, run exactly, and write the parity record that a node asks for (parity.json holds the time of that).
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    graphs = {
        "vision": _vision(rng, width),
        "backbone": _backbone(rng, width),
        "action": _action(rng, width, horizon),
    }
    stages = {}
    for stage, model in graphs.items():
        onnx.checker.check_model(model, full_check=True)
        (root / f"{stage}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        stages[stage] = {
            "file": f"{stage}.onnx",
            "precision": "fp32",
            "inputs": {value.name: _tensor(value) for value in model.graph.input},
            "outputs": {value.name: _tensor(value) for value in model.graph.output},
        }
    (root / "tokenizer.json").write_text(json.dumps(word_tokenizer(), indent=1), encoding="utf-8")
    files = [f"{stage}.onnx" for stage in graphs] + ["tokenizer.json"]
    policy = _policy(stages, horizon, dt_s)
    policy["files"] = {name: sha256_of(root / name) for name in files}
    policy["provenance"] = {"made_by": "vla_runtime.toolchain.tiny_bundle", "seed": seed, "trained": False}
    (root / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False), encoding="utf-8")
    if proven:
        bundle = load_bundle(root)
        observations = random_observations(bundle.policy, 4)
        write_record(bundle, prove(Request(bundle, "onnxruntime", observations, load_budgets())))
    return root


def _policy(stages: dict, horizon: int, dt_s: float) -> dict:
    n = len(JOINTS)
    camera = {"width": SIZE, "height": SIZE, "resize": "stretch", "mean": [0.5] * 3, "std": [0.5] * 3}
    return {
        "format": FORMAT,
        "name": "tiny-so101",
        "family": "flow",
        "licence": "Apache-2.0",
        "dt_s": dt_s,
        "horizon": horizon,
        "cameras": [{"name": "front", **camera}, {"name": "wrist", **camera}],
        "state": {"joints": list(JOINTS), "mean": [0.0] * n, "std": [0.5] * n},
        "action": {
            "space": "joint_position",
            "joints": list(JOINTS),
            "discrete": ["gripper"],
            "mean": [0.0] * n,
            "std": [0.5] * n,
        },
        "limits": {
            joint: {"lower": low, "upper": high, "velocity": 3.0, "acceleration": 15.0, "jerk": 150.0}
            for joint, low, high in zip(JOINTS, LOWER, UPPER)
        },
        "instruction": {"tokenizer": "tokenizer.json", "max_tokens": TOKENS, "default": "pick up the red cube"},
        "sampler": {"kind": "flow", "steps": STEPS, "noise": "normal", "time": "noise_to_clean"},
        "rtc": {"prefix_trained": True, "max_delay_steps": min(12, horizon - 1)},
        "stages": stages,
    }


def _vision(rng, width: int):
    weights = {
        "patch": _normal(rng, (width, 3, 8, 8), 0.1),
        "per_camera": np.array([2, width, -1], np.int64),
        "one_list": np.array([1, -1, width], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["images", "patch"], ["map"], strides=[8, 8]),
        helper.make_node("Reshape", ["map", "per_camera"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["tokens", "one_list"], ["image_tokens"]),
    ]
    patches = 2 * (SIZE // 8) ** 2
    return _model("vision", nodes, weights, {"images": [2, 3, SIZE, SIZE]}, {"image_tokens": [1, patches, width]})


def _backbone(rng, width: int):
    n = len(JOINTS)
    patches = 2 * (SIZE // 8) ** 2
    weights = {
        "embedding": _normal(rng, (len(WORDS), width), 1.0),
        "state_in": _normal(rng, (n, width), 0.5),
        "mix": _normal(rng, (width, width), 1.5 / np.sqrt(width)),
        "last": np.array([-1], np.int64),
        "middle": np.array([1], np.int64),
        "anchor_shape": np.array([1, 1, n], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "text_tokens"], ["words"]),
        helper.make_node("Cast", ["text_mask"], ["mask_number"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask_number", "last"], ["mask_column"]),
        helper.make_node("Mul", ["words", "mask_column"], ["text"]),
        helper.make_node("MatMul", ["state", "state_in"], ["state_row"]),
        helper.make_node("Unsqueeze", ["state_row", "middle"], ["state_token"]),
        helper.make_node("Concat", ["image_tokens", "text", "state_token"], ["sequence"], axis=1),
        helper.make_node("MatMul", ["sequence", "mix"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["context"]),
        helper.make_node("Reshape", ["state", "anchor_shape"], ["anchor"]),
    ]
    inputs = {
        "image_tokens": [1, patches, width],
        "text_tokens": [1, TOKENS],
        "text_mask": [1, TOKENS],
        "state": [1, n],
    }
    outputs = {"context": [1, patches + TOKENS + 1, width], "anchor": [1, 1, n]}
    return _model("backbone", nodes, weights, inputs, outputs)


def _action(rng, width: int, horizon: int):
    """v = (target - x) / (1 - time): one straight flow, whose end is the target whatever the noise was."""
    n = len(JOINTS)
    ramp = (1 - np.cos(np.pi * np.arange(horizon) / max(horizon - 1, 1))) / 2
    weights = {
        "pose_out": _normal(rng, (width, n), 3.0 / np.sqrt(width)),
        "noise_out": _normal(rng, (n, n), 0.3),
        "ramp": (0.5 * ramp).astype(np.float32).reshape(1, horizon, 1),
        "rows": np.array([1], np.int64),
        "last": np.array([-1], np.int64),
        "one": np.array(1.0, np.float32),
        "least": np.array(1.0 / STEPS, np.float32),
    }
    nodes = [
        helper.make_node("ReduceMean", ["context", "rows"], ["summary"], keepdims=1),
        helper.make_node("MatMul", ["summary", "pose_out"], ["pose_raw"]),
        helper.make_node("ReduceMean", ["x", "rows"], ["x_mean"], keepdims=1),
        helper.make_node("MatMul", ["x_mean", "noise_out"], ["variation"]),
        helper.make_node("Add", ["pose_raw", "variation"], ["pose_sum"]),
        helper.make_node("Tanh", ["pose_sum"], ["pose"]),
        helper.make_node("Sub", ["pose", "anchor"], ["way"]),
        helper.make_node("Mul", ["way", "ramp"], ["part"]),
        helper.make_node("Add", ["anchor", "part"], ["target"]),
        helper.make_node("Sub", ["target", "x"], ["gap"]),
        helper.make_node("Sub", ["one", "time"], ["left"]),
        helper.make_node("Max", ["left", "least"], ["left_safe"]),
        helper.make_node("Unsqueeze", ["left_safe", "last"], ["left_column"]),
        helper.make_node("Div", ["gap", "left_column"], ["v"]),
    ]
    patches = 2 * (SIZE // 8) ** 2
    inputs = {
        "context": [1, patches + TOKENS + 1, width],
        "anchor": [1, 1, n],
        "x": [1, horizon, n],
        "time": [1, horizon],
    }
    return _model("action", nodes, weights, inputs, {"v": [1, horizon, n]})


def _model(name: str, nodes, weights: dict, inputs: dict, outputs: dict):
    kinds = {"text_tokens": TensorProto.INT64, "text_mask": TensorProto.BOOL}

    def values(tensors):
        return [
            helper.make_tensor_value_info(key, kinds.get(key, TensorProto.FLOAT), shape)
            for key, shape in tensors.items()
        ]

    initialisers = [numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()]
    graph = helper.make_graph(nodes, name, values(inputs), values(outputs), initialisers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="vla_runtime"
    )


def _tensor(value) -> dict:
    tensor = value.type.tensor_type
    dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    return {"shape": [dim.dim_value for dim in tensor.shape.dim], "dtype": dtype}


def _normal(rng, shape, scale: float) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def word_tokenizer() -> dict:
    """A word-level tokenizer in the tokenizers library's own JSON form."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
