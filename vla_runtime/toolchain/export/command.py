"""Turn a checkpoint directory into a bundle of ONNX stages: LeRobot's SmolVLA, pi0, pi0.5 and ACT, and
OpenVLA and text-only action heads on a Llama backbone, AutoAWQ's 4-bit weights included.

Needs the environment of the checkpoint's own library (`make setup-peers`, or `setup-peers-pi`); what comes out needs
only ONNX Runtime.
"""

import argparse
import importlib
import shutil
from pathlib import Path

import yaml

from vla_runtime.errors import UsageError, UserError
from vla_runtime.policy.bundle import Bundle, load_bundle, sha256_of
from vla_runtime.policy.bundle_model import FORMAT

# config.json's type: module with export(checkpoint, request) -> Exported; a new family is one file and one line
FAMILIES = {
    "llama": "vla_runtime.toolchain.export.llama_actions",
    "openvla": "vla_runtime.toolchain.export.openvla",
    "act": "vla_runtime.toolchain.export.act",
    "smolvla": "vla_runtime.toolchain.export.smolvla",
    "pi0": "vla_runtime.toolchain.export.pi0",
    "pi05": "vla_runtime.toolchain.export.pi0",
}
UNITS = ("rad", "deg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla export``."""
    parser.add_argument("checkpoint", help="directory with config.json and model.safetensors (save_pretrained)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the bundle goes (must not exist)")
    parser.add_argument("--joints", required=True, metavar="NAME,NAME,...", help="joints in the checkpoint's order")
    parser.add_argument("--fps", type=float, required=True, help="rate of the recordings it was trained on")
    parser.add_argument("--unit", choices=UNITS, default="rad", help="unit of its states and actions (default: rad)")
    parser.add_argument("--discrete", default="", metavar="NAME,...", help="joints that are stepped, never blended")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json (default: the checkpoint's)")
    parser.add_argument("--vlm", metavar="DIR", help="SmolVLA: directory of its language model's config.json")
    parser.add_argument("--instruction", default="", help="default instruction")
    parser.add_argument("--name", help="name of the bundle (default: that of the directory)")
    parser.add_argument("--licence", default="unknown", help="licence of the weights")


def run(args: argparse.Namespace) -> int:
    """Run ``vla export``."""
    bundle = export_checkpoint(args)
    print(f"{bundle.path}: {bundle.policy.family}, {len(bundle.policy.stages)} stages, horizon {bundle.policy.horizon}")
    print(f"next: vla parity {bundle.path}")
    return 0


def export_checkpoint(args: argparse.Namespace) -> Bundle:
    """Write the bundle and return it loaded and checked."""
    from vla_runtime.toolchain.export.lerobot_checkpoint import read_checkpoint

    joints = _joints(args)
    source, out = Path(args.checkpoint), Path(args.out)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out} exists and is not empty; choose another directory, or remove it")
    checkpoint = read_checkpoint(source)
    kind = checkpoint.config.get("type") or checkpoint.config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(f"{source}/config.json: type is {kind!r}; this version exports {sorted(FAMILIES)}")
    for feature in ("observation.state", "action") if "input_features" in checkpoint.config else ():
        if checkpoint.width(feature) != len(joints):
            raise UserError(
                f"--joints names {len(joints)} joints, but '{feature}' has {checkpoint.width(feature)} values"
            )
    from vla_runtime.toolchain.export.request import ExportRequest  # these need torch
    from vla_runtime.toolchain.export.stages import write_stages

    request = ExportRequest(
        joints=joints,
        unit=args.unit,
        dt_s=1.0 / args.fps,
        tokenizer=Path(args.tokenizer) if args.tokenizer else source / "tokenizer.json",
        vlm=Path(args.vlm) if args.vlm else None,
        licence=args.licence,
        default_instruction=args.instruction,
    )
    made = importlib.import_module(FAMILIES[kind]).export(checkpoint, request)
    if made.instruction is not None and not request.tokenizer.is_file():
        raise UserError(f"{request.tokenizer} is missing: this policy reads text; give --tokenizer FILE")
    out.mkdir(parents=True, exist_ok=True)
    # Linears that the checkpoint brought as INT4 are known by their numbers, so those stay apart.
    stages, files = write_stages(made.sources, made.example, out, merge=made.int4 is None)
    if made.int4 is not None:
        for stage in stages.values():
            if made.int4.put_into(out / stage["file"]):
                stage["precision"] = "int4"
        files = [name for name in files if (out / name).is_file()]
        print(made.int4.summary())
    if made.instruction is not None:
        shutil.copyfile(request.tokenizer, out / "tokenizer.json")
        files.append("tokenizer.json")
    policy = _policy(args, kind, checkpoint, request, made, stages)
    policy["files"] = {name: sha256_of(out / name) for name in files}
    (out / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False, width=120), encoding="utf-8")
    return load_bundle(out)


def _joints(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the joints' names; UsageError for options that no checkpoint could make sense of."""
    if not 0 < args.fps < float("inf"):
        raise UsageError(f"--fps is {args.fps}; it must be above 0")
    joints, discrete = (_names(text) for text in (args.joints, args.discrete))
    if not joints or len(set(joints)) != len(joints):
        raise UsageError(f"--joints is '{args.joints}'; name each joint once, with commas between them")
    if unknown := sorted(set(discrete) - set(joints)):
        raise UsageError(f"--discrete names {unknown}, which are not among --joints {args.joints}")
    return joints


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _policy(args: argparse.Namespace, kind: str, checkpoint, request, made, stages: dict) -> dict:
    joints = list(request.joints)
    weights = {path.name: sha256_of(path) for path in sorted(checkpoint.path.glob("model*.safetensors"))}
    state = {"joints": joints, **checkpoint.in_radians("STATE", "observation.state", len(joints), request.unit)}
    action = {
        "space": "joint_position",
        "joints": joints,
        "discrete": list(_names(args.discrete)),
        **checkpoint.in_radians("ACTION", "action", len(joints), request.unit),
    }
    if made.action_scale is not None:
        action["mean"], action["std"] = made.action_scale
    if made.pad_state is not None:
        state["pad_to"] = made.pad_state
    if made.pad_action is not None:
        action["pad_to"] = made.pad_action
    policy = {
        "format": FORMAT,
        "name": args.name or checkpoint.path.resolve().name,
        "family": made.family,
        "licence": request.licence,
        "dt_s": request.dt_s,
        "horizon": made.horizon,
        "cameras": made.cameras,
        "state": state,
        "action": action,
        "sampler": made.sampler,
        "stages": stages,
        "provenance": {"checkpoint": kind, "weights": weights},
    }
    if made.int4 is not None:
        policy["provenance"]["quantization"] = made.int4.provenance()
    if made.rtc:
        policy["rtc"] = made.rtc
    if made.instruction is not None:
        text = {"tokenizer": "tokenizer.json", "default": request.default_instruction, **made.instruction}
        policy["instruction"] = text
    return policy
