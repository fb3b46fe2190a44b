"""Time each stage of a bundle on this machine, and compare it with the time that reading its weights takes."""

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vla_runtime.engines.settings import EngineSettings
from vla_runtime.paths import share
from vla_runtime.policy.bundle import Bundle, load_bundle
from vla_runtime.policy.bundle_model import StageModel
from vla_runtime.policy.policy import Observation, Policy, load_policy
from vla_runtime.toolchain.against.peers import PEERS, Ask
from vla_runtime.toolchain.bandwidth import read_bandwidth
from vla_runtime.toolchain.options import at_least
from vla_runtime.toolchain.weights import weight_bytes


@dataclass(frozen=True)
class StageFigures:
    """Times of one stage in ms over all rounds, the bytes it has to read each time, and what that alone would take."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    bytes: int
    floor_ms: float
    steps: int = 1
    tokens: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla bench policy``."""
    parser.add_argument("bundle", nargs="?", default=str(share("bundles", "demo")), help="bundle (default: the demo's)")
    parser.add_argument("--engine", default="auto", help="engine to run it with (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a stage (default: 1)")
    parser.add_argument("--rounds", type=int, default=100, help="measured inferences (default: 100)")
    parser.add_argument("--warm-up", type=int, default=5, help="inferences before that, reported apart (default: 5)")
    parser.add_argument(
        "--against", action="append", default=[], choices=sorted(PEERS), help="also measure a peer (repeatable)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="for lerobot: what the bundle was exported from")
    parser.add_argument("--peer", type=Path, metavar="DIR", help="where the peer is (default: where make puts it)")
    parser.add_argument("--peer-rounds", type=int, default=30, help="measured rounds of a peer (default: 30)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE ('-': standard output)")


def run(args: argparse.Namespace) -> int:
    """Run ``vla bench policy``."""
    at_least(args, threads=1, rounds=1, warm_up=1, peer_rounds=1)
    bundle = load_bundle(args.bundle)
    ask = Ask(args.peer, args.threads, args.peer_rounds, bundle, args.engine, args.checkpoint)
    peers = {name: PEERS[name](ask) for name in args.against}
    settings = EngineSettings(threads=args.threads)
    policy = load_policy(bundle, args.engine, allow_unproven=True, settings=settings)
    report = bench(policy, rounds=args.rounds, warm_up=args.warm_up, threads=args.threads)
    report["against"] = {name: measure() for name, measure in peers.items()}
    if args.json == "-":
        json.dump(report, sys.stdout, indent=2)
        print()
        return 0
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print_report(report)
    return 0


def bench(policy: Policy, *, rounds: int, warm_up: int, threads: int) -> dict:
    """Measure ``rounds`` inferences on random observations; the memory's speed is measured before and after."""
    rng = np.random.default_rng(0)
    before = read_bandwidth(threads)
    cold = [_round(policy, rng, seed) for seed in range(warm_up)]
    times = [_round(policy, rng, seed) for seed in range(rounds)]
    bandwidth = max(before, read_bandwidth(threads))
    bundle = policy.bundle
    stages = {}
    for name in times[0]:
        values = np.array([each[name] for each in times])
        size, steps = stage_bytes(bundle, name)
        p50, p95, p99 = (float(np.percentile(values, q)) for q in (50, 95, 99))
        floor_ms = size / bandwidth * 1e3
        stages[name] = vars(
            StageFigures(p50, p95, p99, float(values.max()), size, floor_ms, steps, _tokens(bundle, name))
        )
    return {
        "bundle": bundle.policy.name,
        "engine": {name: engine.name for name, engine in policy.engines.items()},
        "rounds": rounds,
        "first_ms": cold[0]["total"],
        "stages": stages,
        "machine": {
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "threads": threads,
            "read_bandwidth_gb_s": bandwidth / 1e9,
            "python": platform.python_version(),
        },
        "against": {},
    }


def stage_bytes(bundle: Bundle, name: str) -> tuple[int, int]:
    """Return (bytes that one inference must read in this stage, times it runs): weights and inputs, once per step."""
    policy = bundle.policy
    if name == "total":
        once = [stage for stage in policy.stages if not stage.startswith("action")]
        return sum(stage_bytes(bundle, stage)[0] for stage in [*once, "action"]), 1
    stages = [name] if name in policy.stages else []
    steps = 1
    if name == "action":
        # What the policy times as its last step: the flow's steps, or the tokens after the first.
        stages = [each for each in policy.stages if each.startswith("action") and each != "action_vjp"]
        tokens = policy.horizon * policy.action.width - 1
        steps = policy.sampler.steps if policy.sampler.kind != "tokens" else tokens
    if not stages:
        return sum(3 * camera.height * camera.width for camera in policy.cameras), 1
    read = sum(weight_bytes(bundle.stage_path(stage)) + _input_bytes(policy.stages[stage]) for stage in stages)
    return read * steps, steps


def _input_bytes(stage: StageModel) -> int:
    return sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in stage.inputs.values())


def print_report(report: dict) -> None:
    """Print the figures as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    machine = report["machine"]
    print(f"{report['bundle']}: {report['rounds']} inferences, after a first one of {report['first_ms']:.1f} ms")
    table = Table("stage", "steps", "p50", "p95", "p99", "max ms", "MB read", "floor ms", "p50/floor", box=box.SIMPLE)
    for name, stage in report["stages"].items():
        times = (f"{stage[key]:.2f}" for key in ("p50_ms", "p95_ms", "p99_ms", "max_ms"))
        ratio = f"{stage['p50_ms'] / stage['floor_ms']:.1f}" if stage["floor_ms"] else "-"
        size, floor = f"{stage['bytes'] / 1e6:.2f}", f"{stage['floor_ms']:.3f}"
        table.add_row(name, str(stage["steps"]), *times, size, floor, ratio)
    Console(width=100).print(table)
    print(
        f"{machine['cpu']}, {machine['threads']} thread(s), reads {machine['read_bandwidth_gb_s']:.1f} GB/s from memory"
    )
    print("floor: the time that reading the bytes from memory takes; weights that fit the cache can beat it")
    for peer, found in report["against"].items():
        printer = _print_policies if "contenders" in found else _print_peer
        printer(peer, found)


def _print_policies(peer: str, found: dict) -> None:
    print(f"\nagainst {peer}: pictures to actions, {found['threads']} thread(s), {found['rounds']} rounds in turns")
    for label, each in found["contenders"].items():
        line = f"  {label:<20} p50 {each['p50_ms']:.0f} best {each['min_ms']:.0f} CPU {each['cpu_p50_ms']:.0f} ms"
        line += f"  off by {each['max_abs_difference']:.1e} (normalised actions)"
        ratio = found["speed_up"].get(label)
        print(line + (f"; {ratio:.2f} times as fast as the faster {peer}" if ratio else ""))


def _print_peer(peer: str, found: dict) -> None:
    print(f"\nagainst {peer}: one token through INT4 layers of a Llama's shape, per layer")
    for figures in found.values():
        read = figures["read_gb_s"]
        clock, threads = figures["clock"], figures["threads"]
        print(f"  {figures['hidden']} wide, {threads} thread(s), {clock} time, reads {read['best']:.1f} GB/s at best")
        print(f"    ours is {figures['ours']['engine']}")
        for label, each in figures.items():
            if isinstance(each, dict) and "best_ms" in each:
                share, ratio = each["share_of_read"], figures["time_ratio"].get(label)
                line = f"    {label:<12} p50 {each['p50_ms']:.2f} best {each['best_ms']:.2f} ms"
                line += f"  {share['p50']:.0%} (best {share['best']:.0%}) of the reading"
                print(line + (f"; ours takes {ratio['p50']:.2f} times as long" if ratio else ""))


def _round(policy: Policy, rng: np.random.Generator, seed: int) -> dict[str, float]:
    model = policy.bundle.policy
    images = {
        camera.name: rng.integers(0, 256, (camera.height, camera.width, 3), dtype=np.uint8) for camera in model.cameras
    }
    state = np.asarray(model.state.mean) + np.asarray(model.state.std) * rng.uniform(-1, 1, len(model.state.joints))
    text = model.instruction.default if model.instruction is not None else ""
    stage_ms = policy.infer(Observation(0.0, images, state, text), seed=seed).stage_ms
    return {**stage_ms, "total": sum(stage_ms.values())}


def _tokens(bundle: Bundle, name: str) -> int:
    stage = bundle.policy.stages.get(name)
    return max((t.shape[1] for t in stage.outputs.values() if len(t.shape) >= 3), default=0) if stage else 0


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
