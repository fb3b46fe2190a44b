"""Check a bundle (files, hashes, fields, graphs, parity records), or show what is in it."""

import argparse
import json
import sys

from vla_runtime.engines.base import TensorSpec
from vla_runtime.policy.bundle import PARITY_FILE, Bundle, load_bundle
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.proof import load_records, proof_command
from vla_runtime.toolchain.weights import weight_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla bundle``."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    check = commands.add_parser(
        "check", help="verify every hash, field and graph; exit code 1 and the reason if one is wrong"
    )
    show = commands.add_parser("show", help="check, then say what the policy sees, emits and runs")
    for sub in (check, show):
        sub.add_argument("bundle", help="directory of the bundle")
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
    commands.add_parser("schema", help="print the JSON schema of policy.yaml")


def run(args: argparse.Namespace) -> int:
    """Run ``vla bundle``; BundleError (shown without a traceback) when the bundle is not sound."""
    if args.what == "schema":
        print(schema_text(), end="")
        return 0
    bundle = load_bundle(args.bundle)
    facts = describe(bundle)
    if args.json:
        json.dump(facts, sys.stdout, indent=2)
        print()
    elif args.what == "check":
        print(
            f"{bundle.path}: sound ({len(bundle.policy.files)} files, {facts['weight_bytes'] / 1e6:.2f} MB of weights)"
        )
        print(f"parity: {_parity_line(bundle, facts)}")
    else:
        _show(bundle, facts)
    return 0


def schema_text() -> str:
    """JSON schema of policy.yaml, as committed in docs/policy.schema.json."""
    schema = PolicyModel.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2) + "\n"


def describe(bundle: Bundle) -> dict:
    """Facts about a bundle, as JSON-able values."""
    policy = bundle.policy
    stages = {}
    for name, stage in policy.stages.items():
        stages[name] = {
            "file": stage.file,
            "precision": stage.precision,
            "weight_bytes": weight_bytes(bundle.stage_path(name)),
            "inputs": {key: _tensor(value) for key, value in stage.inputs.items()},
            "outputs": {key: _tensor(value) for key, value in stage.outputs.items()},
        }
    records = load_records(bundle)
    return {
        "path": str(bundle.path),
        "name": policy.name,
        "family": policy.family,
        "licence": policy.licence,
        "dt_s": policy.dt_s,
        "horizon": policy.horizon,
        "cameras": [camera.model_dump() for camera in policy.cameras],
        "state_joints": policy.state.joints,
        "action": {"space": policy.action.space, "joints": policy.action.joints, "discrete": policy.action.discrete},
        "sampler": policy.sampler.model_dump(),
        "rtc": policy.rtc.model_dump(),
        "stages": stages,
        "weight_bytes": sum(stage["weight_bytes"] for stage in stages.values()),
        "parity": [
            {"engine": record.engine, "verdict": record.verdict, "covers_these_files": record.covers(bundle)}
            for record in records
        ],
        "provenance": policy.provenance,
    }


def _tensor(value) -> str:
    return str(TensorSpec(tuple(value.shape), value.dtype))


def _parity_line(bundle: Bundle, facts: dict) -> str:
    if not facts["parity"]:
        return f"no {PARITY_FILE}; run `{proof_command(bundle)}` before a robot runs it"
    good = [r["engine"] for r in facts["parity"] if r["verdict"] == "pass" and r["covers_these_files"]]
    if good:
        return f"proven for {', '.join(sorted(set(good)))}"
    return f"no passing record for exactly these files; run `{proof_command(bundle)}`"


def _show(bundle: Bundle, facts: dict) -> None:
    policy = bundle.policy
    span = policy.horizon * policy.dt_s
    lines = [
        f"{policy.name}: family {policy.family}, licence {policy.licence}",
        *([policy.description] if policy.description else []),
        f"emits    {policy.horizon} steps of {policy.dt_s * 1e3:g} ms = {span:g} s, {policy.action.space}",
        f"joints   {', '.join(policy.action.joints)} (discrete: {', '.join(policy.action.discrete) or 'none'})",
    ]
    for camera in policy.cameras:
        look = f"{camera.width}x{camera.height}, {camera.resize}, mean {list(camera.mean)}, std {list(camera.std)}"
        lines.append(f"camera   {camera.name}: {look}")
    if policy.instruction is not None:
        text = policy.instruction
        lines.append(f"reads    up to {text.max_tokens} tokens of instruction, by default {text.default!r}")
    rtc = policy.rtc
    trained = f"trained on prefixes of up to {rtc.max_delay_steps} steps" if rtc.prefix_trained else "no trained prefix"
    lines += [
        f"sampler  {policy.sampler.kind}, {policy.sampler.steps} step(s); {trained}",
        f"parity   {_parity_line(bundle, facts)}",
    ]
    for name, stage in facts["stages"].items():
        lines.append(f"stage    {name}: {stage['file']}, {stage['precision']}, {stage['weight_bytes'] / 1e6:.2f} MB")
        lines += [f"           in   {key} {value}" for key, value in stage["inputs"].items()]
        lines += [f"           out  {key} {value}" for key, value in stage["outputs"].items()]
    print("\n".join(lines))
