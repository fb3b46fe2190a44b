"""Prove that an engine still does what the reference does: stages, ticks, trajectories, closed loop.

Writes parity.json and parity_report.md into the bundle. Exit code 0: pass; 1: fail or inconclusive.
"""

import argparse
import json
import sys
from pathlib import Path

from vla_runtime.engines.registry import resolve
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import Bundle, load_bundle
from vla_runtime.toolchain.observations import REFERENCE_FILE, ObservationSet, load_observations, random_observations
from vla_runtime.toolchain.options import at_least
from vla_runtime.toolchain.parity.budgets import load_budgets
from vla_runtime.toolchain.parity.episodes import SimulatedEpisodes, fits_simulator
from vla_runtime.toolchain.parity.levels import PASS
from vla_runtime.toolchain.parity.prove import Request, prove
from vla_runtime.toolchain.parity.record import write_record
from vla_runtime.toolchain.parity.report import write_report
from vla_runtime.toolchain.quantize.calibration import choose
from vla_runtime.toolchain.recorded import FIRST_SEED, record_observations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla parity``."""
    parser.add_argument("bundle", help="the bundle to prove")
    parser.add_argument("--engine", default="auto", help="engine to prove it on (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a stage (default: 1)")
    parser.add_argument("--reference", metavar="DIR", help="bundle to compare with (default: itself, run exactly)")
    parser.add_argument("--observations", metavar="FILE", help=f"observations (default: the bundle's {REFERENCE_FILE})")
    parser.add_argument("--record", type=int, metavar="N", help="or: what the reference sees in N simulated episodes")
    parser.add_argument("--count", type=int, default=32, help="observations to compare on (default: 32)")
    parser.add_argument("--budgets", metavar="FILE", help="budgets (default: config/parity_budgets.yaml)")
    parser.add_argument(
        "--episodes", type=int, help="closed-loop pairs; 0: none (default: the budgets' number, if needed)"
    )
    parser.add_argument("--seed", type=int, default=1_000_000, help="first seed of the episodes (default: 1000000)")
    parser.add_argument("--per-layer", action="store_true", help="also say which layer drifts most")
    parser.add_argument("--json", metavar="FILE", help="also write the record to FILE ('-': standard output)")
    parser.add_argument("--dry-run", action="store_true", help="measure, but write nothing into the bundle")


def run(args: argparse.Namespace) -> int:
    """Run ``vla parity``."""
    at_least(args, threads=1, count=1, record=1, episodes=0, seed=0)
    bundle = load_bundle(args.bundle)
    reference = load_bundle(args.reference) if args.reference else None
    if reference is None and "quantized_from" in bundle.policy.provenance:
        source = _source(bundle)
        raise UserError(
            f"{bundle.path} was made by quantising {source}: compared with itself it would always pass. "
            "Give the bundle that it was made from: --reference DIR"
        )
    if reference is not None and "quantized_from" in reference.policy.provenance:
        source = _source(reference)
        raise UserError(
            f"--reference {reference.path} was made by quantising {source} itself: what it lost would not count. "
            "Give the bundle at the beginning"
        )
    budgets = load_budgets(Path(args.budgets) if args.budgets else None)
    episodes = _episodes(args, bundle)
    count = budgets.closed_loop.episodes if args.episodes is None else args.episodes
    request = Request(
        candidate=bundle,
        engine=resolve(args.engine),
        observations=_observations(args, bundle, reference),
        budgets=budgets,
        reference=reference,
        checkpoint=_checkpoint(args, bundle),
        settings=EngineSettings(threads=args.threads),
        per_layer=args.per_layer,
        episode=episodes,
        seeds=range(args.seed, args.seed + count),
    )
    try:
        record = prove(request, _progress)
    finally:
        if episodes is not None:
            episodes.close()
    if not args.dry_run:
        write_record(bundle, record)
        write_report(bundle.path, record)
    if args.json == "-":
        json.dump(record, sys.stdout, indent=2)
        print()
    else:
        if args.json:
            Path(args.json).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        _print(record, bundle)
    return 0 if record["verdict"] == PASS else 1


def _source(bundle: Bundle) -> str:
    """Name what a bundle was quantised from; its hashes are in policy.yaml for whoever wants them."""
    source = bundle.policy.provenance["quantized_from"]
    return f"'{source['name']}'" if isinstance(source, dict) and "name" in source else str(source)


def _observations(args: argparse.Namespace, bundle: Bundle, reference: Bundle | None) -> ObservationSet:
    if args.observations:
        return load_observations(Path(args.observations), bundle.policy).first(args.count)
    if args.record is not None:
        # Other seeds than those that a quantisation was calibrated on.
        first = FIRST_SEED + 500_000
        recorded = record_observations(reference or bundle, range(first, first + args.record))
        return choose(recorded, args.count)
    if (own := _own_answers(bundle)) is not None:
        return load_observations(own, bundle.policy).first(args.count)
    return random_observations(bundle.policy, args.count)


def _checkpoint(args: argparse.Namespace, bundle: Bundle) -> ObservationSet | None:
    """Return the answers of the checkpoint's own code, from --observations or the bundle, where there are any."""
    for file in (args.observations, _own_answers(bundle)):
        if file is not None:
            known = load_observations(Path(file), bundle.policy)
            if known.tensors or known.actions is not None:
                return known
    return None


def _own_answers(bundle: Bundle) -> Path | None:
    """Return the bundle's file of answers, if it has one; BundleError when it is there without a hash."""
    return bundle.file(REFERENCE_FILE) if (bundle.path / REFERENCE_FILE).exists() else None


def _episodes(args: argparse.Namespace, bundle: Bundle) -> SimulatedEpisodes | None:
    if args.episodes == 0:
        return None
    if fits_simulator(bundle.policy):
        return SimulatedEpisodes()
    if args.episodes:
        raise UserError(
            f"--episodes is {args.episodes}, but the simulated arm lacks joints or cameras of {bundle.policy.name}: "
            "run the closed loop on the robot, and give --episodes 0 here"
        )
    return None


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rclosed loop: pair {done} of {total}", end="\n" if done == total else "", file=sys.stderr)


def _print(record: dict, bundle: Bundle) -> None:
    print(f"{bundle.path} on {record['engine']}: {record['verdict']}")
    for name, level in record["levels"].items():
        print(f"  {name:<19}{level['verdict']}")
        for fault in level["faults"]:
            print(f"    {fault}")
