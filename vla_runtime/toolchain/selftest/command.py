"""Say on one page whether this machine is fit to run a policy, and why.

The first thing to run on a new computer: versions, clocks and power mode, memory, GPU, real-time rights, 50 Hz jitter,
DDS, the bundle's engine, its parity record and its latency against the horizon.
"""

import argparse
import json
import random
from pathlib import Path

from vla_runtime.errors import UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.selftest.result import FAIL, WARN, Result

MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]FAIL[/]", "skip": "[dim]–[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla selftest``."""
    parser.add_argument(
        "--bundle",
        type=Path,
        default=share("bundles", "demo"),
        help="the policy to try: a bundle's folder (default: the demo's)",
    )
    parser.add_argument("--engine", default="auto", help="auto, onnxruntime, openvino, tensorrt, tensorrt_rtx")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")


def run(args: argparse.Namespace) -> int:
    """Run every check, print the page; 0 when nothing failed."""
    from vla_runtime.engines.registry import resolve
    from vla_runtime.toolchain.selftest import machine
    from vla_runtime.toolchain.selftest.policy import policy

    resolve(args.engine)
    if not args.bundle.is_dir():
        raise UserError(f"there is no bundle at '{args.bundle}'; name one with --bundle")
    results = [
        machine.versions(),
        machine.clocks(),
        machine.memory(),
        machine.gpu(),
        machine.realtime(),
        machine.jitter(),
    ]
    if results[0].level != FAIL:
        from vla_runtime.toolchain.selftest.middleware import dds

        results.append(dds(random.SystemRandom().randint(1, 101)))
    results += policy(args.bundle, args.engine)
    _print(results)
    if args.json:
        args.json.write_text(
            json.dumps({"fit": fit(results), "checks": [r.as_dict() for r in results]}, indent=2) + "\n"
        )
    return 0 if fit(results) else 1


def fit(results: list[Result]) -> bool:
    """Whether nothing failed."""
    return all(result.level != FAIL for result in results)


def _print(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(width=min(Console().width, 100), show_lines=False)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found, and what to do")
    for result in results:
        advice = f"\n[yellow]→ {result.advice}[/]" if result.advice else ""
        table.add_row(result.check, MARKS[result.level], result.found + advice)
    console = Console()
    console.print(table)
    failed = [result.check for result in results if result.level == FAIL]
    warned = [result.check for result in results if result.level == WARN]
    if failed:
        console.print(f"[bold red]Not fit[/]: {', '.join(failed)}.")
    else:
        console.print("[bold green]Fit[/]" + (f", with warnings: {', '.join(warned)}." if warned else "."))
