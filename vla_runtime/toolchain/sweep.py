"""Find the largest safe K: closed-loop episodes over K x added delay x blending, with the same seeds in every cell.

Runs on simulated time. Every cell is compared, seed by seed, with a synchronous run (no delay, half of each chunk
executed). Writes sweep.csv, sweep.png and sweep.json, prints a table and one sentence: the largest K that keeps success
within the budget, or how many more episodes would tell.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from vla_runtime.errors import UsageError
from vla_runtime.toolchain.evaluate import BLENDS, add_policy_arguments, load, make, plan
from vla_runtime.toolchain.options import at_least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla sweep``."""
    add_policy_arguments(parser)
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="seeds of every cell (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first of N seeds (default: 0)")
    parser.add_argument(
        "--k", default="10,20,30,40", metavar="LIST", help="control periods between requests (default: 10,20,30,40)"
    )
    parser.add_argument(
        "--added", default="0,3,6,9", metavar="LIST", help="delays to add, in control periods (default: 0,3,6,9)"
    )
    parser.add_argument(
        "--blend",
        default="cut,crossfade,rtc",
        metavar="LIST",
        help=f"of {', '.join(BLENDS)} (default: the first three)",
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=3.0,
        metavar="TICKS",
        help="the policy's own delay, to which is added (default: 3)",
    )
    parser.add_argument(
        "--budget", type=float, default=0.10, metavar="SHARE", help="drop in success that may be lost (default: 0.10)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=8.0, metavar="S", help="simulated seconds of an episode (default: 8)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/sweep"), metavar="FOLDER", help="default: out/sweep")


def run(args: argparse.Namespace) -> int:
    """Run ``vla sweep``; 0 when every cell ran."""
    from vla_runtime.sim.loop_settings import PERIOD_S
    from vla_runtime.toolchain.sweep_grid import Cell, Outcome, conclude, table, write_csv
    from vla_runtime.toolchain.sweep_plot import plot

    grid = _grid(args)
    policy = load(args)
    seeds = [seed for seed, _ in plan(args.episodes, args.seed, each_colour=False)]
    args.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    model = policy.bundle.policy
    half_ticks = max(1, round(model.horizon * model.dt_s / 2 / PERIOD_S))
    synchronous = Cell("cut", half_ticks, 0.0, 0.0)
    reference = _episodes(policy, synchronous, seeds, args.time_limit)
    _say(f"synchronous run (K = {half_ticks}): {sum(r.success for r in reference)} of {len(seeds)} succeeded")
    _say(f"{len(grid)} cells of {len(seeds)} episodes: about {(time.monotonic() - begin) * len(grid) / 60:.0f} min")
    outcomes, rows = [], []
    for blend, k, added in grid:
        cell = Cell(blend, k, added, args.delay)
        outcomes.append(Outcome(cell, _episodes(policy, cell, seeds, args.time_limit), reference))
        rows.append(outcomes[-1].row(args.budget))
        write_csv(args.out / "sweep.csv", rows)  # after each cell: an interrupted sweep is worth something too
        _say(table(rows[-1:]).splitlines()[-1])
    sentence = conclude(outcomes, args.budget)
    rate = sum(r.success for r in reference) / len(reference)
    plot(args.out / "sweep.png", rows, rate, f"{len(seeds)} paired episodes per cell")
    content = {"sentence": sentence, "budget": args.budget, "reference_success": rate, "seeds": seeds, "cells": rows}
    (args.out / "sweep.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(table(rows))
    print(f"\n{sentence}\n{args.out}/sweep.csv, sweep.png, sweep.json")
    return 0


def _grid(args: argparse.Namespace) -> list[tuple[str, int, float]]:
    blends = [part.strip() for part in args.blend.split(",")]
    unknown = [blend for blend in blends if blend not in BLENDS]
    if unknown:
        raise UsageError(f"--blend names {', '.join(unknown)}; there are {', '.join(BLENDS)}")
    ks, added = _numbers("--k", args.k, int, 1), _numbers("--added", args.added, float, 0)
    at_least(args, episodes=1, seed=0, delay=0, time_limit=0.1, threads=1)
    if not 0 < args.budget < 1:
        raise UsageError(f"--budget is {args.budget:g}; it must be between 0 and 1")
    return list(itertools.product(blends, ks, added))


def _numbers(option: str, text: str, kind: type, least: float) -> list[Any]:
    try:
        numbers = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"{option} is '{text}'; give numbers with commas between them") from None
    if not all(least <= number < float("inf") for number in numbers):
        raise UsageError(f"{option} is '{text}'; the smallest allowed is {least:g}")
    return numbers


def _episodes(policy: Any, cell: Any, seeds: list[int], time_limit_s: float) -> list[Any]:
    from vla_runtime.sim.closed_loop import ClosedLoop

    with make(ClosedLoop, policy, cell.settings(time_limit_s)) as loop:
        return [loop.run(seed) for seed in seeds]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
