"""`vla train-demo`: from nothing to a bundle. Expert, training with corrections, export, evaluation."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

NEEDED = ("torch", "safetensors", "onnxscript", "mujoco", "ruckig", "tokenizers")
ROBOT = Path("config/robots/so101_sim.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `vla train-demo`."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle to write, e.g. bundles/demo-fp32")
    parser.add_argument(
        "--data", type=Path, default=Path("data/demo"), help="shards and checkpoints (default: data/demo)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of scenes, disturbances, weights and noise (default: 0)"
    )
    parser.add_argument("--minutes", type=float, default=90.0, help="time for training itself (default: 90)")
    parser.add_argument("--episodes", type=int, default=1000, help="episodes of the expert to collect (default: 1000)")
    parser.add_argument(
        "--evaluate", type=int, default=100, metavar="N", help="unseen scenes to try at the end (default: 100)"
    )
    parser.add_argument("--resume", type=Path, help="checkpoint (.safetensors) to go on from")
    parser.add_argument("--limits", type=Path, default=ROBOT, help=f"the robot's limits (default: {ROBOT})")


def run(args: argparse.Namespace) -> int:
    """Run the whole recipe; returns 0, or 2 when something it needs is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"vla train-demo needs {', '.join(missing)}: use the training environment "
            "(make setup-export, then .venv-export/bin/python -m vla_runtime.cli train-demo ...)",
            file=sys.stderr,
        )
        return 2
    wrong = _problem(args)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    # Read by OpenMP when torch is first imported. Waiting threads that spin take the other processes' cores.
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    os.environ.setdefault("MUJOCO_GL", "egl")
    import torch

    torch.set_num_threads(1)
    _collect(args)
    checkpoint = _train(args)
    return _finish(args, checkpoint)


def _problem(args: argparse.Namespace) -> str | None:
    if not args.minutes > 0:
        return f"--minutes must be above 0, got {args.minutes}"
    if args.episodes < 1 or args.evaluate < 0:
        return f"--episodes must be at least 1 and --evaluate at least 0, got {args.episodes} and {args.evaluate}"
    if not args.limits.is_file():
        return f"--limits {args.limits}: no such file (run from the repository's root, or name the robot's YAML)"
    if args.resume is not None and not args.resume.is_file():
        return f"--resume {args.resume}: no such file"
    return None


def _collect(args: argparse.Namespace) -> None:
    from vla_runtime.toolchain.train_demo.collect import collect_expert

    collect_expert(args.data / "shards", args.seed, args.episodes, print)


def _train(args: argparse.Namespace) -> Path:
    from vla_runtime.toolchain.train_demo.pool import Pool
    from vla_runtime.toolchain.train_demo.train import Trainer, TrainSettings

    settings = TrainSettings(minutes=args.minutes, seed=args.seed)
    trainer = Trainer(settings, Pool(args.data / "shards", args.seed), args.data / "checkpoints", args.resume)
    # Corrections come from a second process, which always drives with the newest checkpoint.
    command = [sys.executable, "-m", "vla_runtime.toolchain.train_demo.correct"]
    command += ["--data", str(args.data), "--seed", str(args.seed), "--minutes", str(args.minutes)]
    helper = subprocess.Popen(command)
    try:
        return trainer.run(lambda line: print(line, flush=True))
    finally:
        helper.terminate()
        helper.wait(30)


def _finish(args: argparse.Namespace, checkpoint: Path) -> int:
    from vla_runtime.policy.bundle import load_bundle
    from vla_runtime.sim.task import EVALUATION_SEED
    from vla_runtime.toolchain.quantize.calibration import choose
    from vla_runtime.toolchain.recorded import record_observations
    from vla_runtime.toolchain.train_demo.evaluate import TorchDriver, evaluate
    from vla_runtime.toolchain.train_demo.export import write_bundle
    from vla_runtime.toolchain.train_demo.reference import REFERENCE_SEED, write_reference
    from vla_runtime.toolchain.train_demo.train import load_checkpoint

    model, mean, std, meta = load_checkpoint(checkpoint)
    provenance = {"trained_by": "vla train-demo", "seed": args.seed, "observations": meta["seen"]}
    provenance |= {"optimiser_steps": meta["step"], "model": meta["config"]}
    if args.evaluate:
        seeds = range(EVALUATION_SEED, EVALUATION_SEED + args.evaluate)
        tally = evaluate(TorchDriver(model, mean, std, args.seed), seeds)
        print(tally)
        provenance["evaluation"] = {"seeds": [seeds.start, seeds.stop], "lifted": tally.successes, "wrong": tally.wrong}
    write_bundle(model, mean, std, args.out, args.limits, provenance)
    bundle = load_bundle(args.out)
    asked = choose(record_observations(bundle, range(REFERENCE_SEED, REFERENCE_SEED + 3)), 16)
    write_reference(model, bundle, asked)
    print(f"bundle written to {args.out}")
    return 0
