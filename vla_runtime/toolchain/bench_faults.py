"""Throw faults at executor and watchdog on simulated time, and count broken promises.

Every fault is seeded, every command is judged against the limits, against the command before it and against what
really happened. Nothing runs in real time and no ROS is needed. Exit code 1 if a promise was broken.
"""

import argparse
import json
import platform
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vla_runtime.control.limits import Limits
from vla_runtime.errors import UsageError, UserError
from vla_runtime.paths import share
from vla_runtime.sim.endurance import ALLOWED_GROWTH, Endurance
from vla_runtime.sim.fault_kinds import KINDS
from vla_runtime.sim.faults import Campaign
from vla_runtime.toolchain.options import at_least

MOST_HOURS = 1000
ALLOWED_MS = 40.0  # two control periods after the deadline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument("--faults", type=int, default=1000, metavar="N", help="how many faults (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="everything follows from it (default 0)")
    parser.add_argument("--joints", type=int, default=6, metavar="N", help="joints of the arm, the last a gripper")
    parser.add_argument("--kinds", metavar="A,B", help=f"only these kinds, of: {', '.join(KINDS)}")
    parser.add_argument("--processes", type=int, default=0, metavar="N",
                        help="then also N faults in real processes over DDS: SIGKILL, SIGSTOP, NaN, late, stale "
                        "(about 5 s each; default 0)")  # fmt: skip
    parser.add_argument("--endurance", type=float, default=0.0, metavar="HOURS",
                        help="then also so many hours of simulated time in one go, one fault a minute: memory and "
                        "counters (an hour takes about 3 min; default 0)")  # fmt: skip
    parser.add_argument("--bundle", type=Path, default=share("bundles", "demo"), help="policy of the real processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")


def run(args: argparse.Namespace) -> int:
    """Run the campaign, print its tables; return 0 if every promise was kept."""
    at_least(args, faults=1, joints=2, processes=0, endurance=0, seed=0)
    if args.endurance > MOST_HOURS:
        raise UsageError(f"--endurance is {args.endurance:g}; it must be at most {MOST_HOURS} hours")
    kinds = tuple(args.kinds.split(",")) if args.kinds else tuple(KINDS)
    try:
        campaign = Campaign(arm(args.joints), args.seed, kinds)
    except ValueError as error:
        raise UsageError(f"--kinds: {error}") from error
    begun = time.perf_counter()
    _run(campaign, args.faults)
    figures = campaign.report()
    seconds = time.perf_counter() - begun
    figures["wall_s"] = round(seconds, 1)
    figures["ticks_per_s"] = round(figures["ticks"] / seconds)
    figures["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    if args.endurance:
        figures["endurance"] = endure(arm(args.joints), args.endurance, args.seed)
    if args.processes:
        figures["processes"] = strike_processes(args.processes, args.bundle, args.seed)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    show(figures, Console())
    broken = args.processes and (figures["processes"]["violations"] or figures["processes"]["watchdog"]["violations"])
    return 0 if kept(figures) and not broken and endured(figures.get("endurance")) else 1


def endure(limits: Limits, hours: float, seed: int) -> dict[str, Any]:
    """Let ``hours`` of simulated time pass in this process; return what became of its memory and its counters."""
    begun = time.perf_counter()
    minutes = max(2, round(hours * 60.0))
    columns = (TextColumn("simulated minutes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        bar = progress.add_task("minutes", total=minutes)
        figures = Endurance(limits, seed).run(minutes, lambda done: progress.update(bar, completed=done)).report()
    figures["wall_s"] = round(time.perf_counter() - begun, 1)
    return figures


def endured(figures: dict[str, Any] | None) -> bool:
    """Whether memory stayed, counters add up and no promise was broken (or nobody asked)."""
    if figures is None:
        return True
    return figures["growth"] <= ALLOWED_GROWTH and not figures["violations"] and not figures["faulty_counters"]


def strike_processes(count: int, bundle: Path, seed: int) -> dict[str, Any]:
    """Strike real processes ``count`` times, then kill the watchdog some more; print what came of each kind."""
    from vla_runtime.toolchain.process_faults import KINDS as PROCESS_KINDS
    from vla_runtime.toolchain.process_faults import kill_watchdog, run_campaign

    if not (bundle / "policy.yaml").is_file():
        raise UserError(f"there is no bundle at '{bundle}'; name one with --bundle")
    columns = (TextColumn("faults in processes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress, tempfile.TemporaryDirectory() as folder:
        bar = progress.add_task("processes", total=count)
        figures = run_campaign(count, bundle, seed, Path(folder), lambda *_: progress.advance(bar))
        figures["watchdog"] = kill_watchdog(
            bundle, Path(folder) / "watchdog", max(1, count // len(PROCESS_KINDS)), seed
        )
    table = Table(title="Real processes: ms to the fallback's first command at the controller", title_justify="left")
    for column in ("fault", "times", "p50", "p99", "max", "max beyond the deadline"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for name, kind in figures["per_kind"].items():
        table.add_row(name, str(kind["faults"]), *map(_ms, kind["switch_ms"].values()), _ms(kind["late_ms"]["max"]))
    Console().print(table)
    for text in figures["violations"] + figures["watchdog"]["violations"]:
        Console().print(f"[red]{text}[/red]")
    return figures


def kept(figures: dict[str, Any]) -> bool:
    """Whether no promise was broken and no switch took longer than its deadline and two periods."""
    slowest = figures["switch_ms"]["max"]
    return figures["violations"] == 0 and (slowest is None or slowest <= ALLOWED_MS)


def arm(joints: int) -> Limits:
    """Return the limits of an arm with ``joints`` joints, the last one a gripper."""
    one = np.ones(joints)
    discrete = np.arange(joints) == joints - 1
    names = tuple(f"joint_{i + 1}" for i in range(joints - 1)) + ("gripper",)
    return Limits(names, -2.0 * one, 2.0 * one, 3.0 * one, 10.0 * one, 200.0 * one, discrete)


class _EnoughError(Exception):
    """Somebody pressed Ctrl-C."""


def _run(campaign: Campaign, faults: int) -> None:
    """Throw the faults. Ctrl-C ends the campaign with the world that runs: what there is by then is reported."""
    pressed: list[int] = []
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        with Progress(*columns, transient=True) as progress:
            bar = progress.add_task("faults", total=faults)

            def after_a_world(done: int) -> None:
                progress.update(bar, completed=done)
                if pressed:
                    raise _EnoughError

            campaign.run(faults, after_a_world)
    except _EnoughError:
        pass
    finally:
        signal.signal(signal.SIGINT, before)


def show(figures: dict[str, Any], console: Console) -> None:
    """Print the figures as tables."""
    table = Table(title="From the fault to the fallback's first command", title_justify="left")
    for column in ("fault", "times", "from NOMINAL", "fallback took over", "p50 ms", "p99 ms", "max ms"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for name, kind in figures["by_kind"].items():
        spread = kind["fault_to_fallback_ms"]
        table.add_row(name, *(str(kind[key]) for key in ("faults", "alone", "fell")), *map(_ms, spread.values()))
    console.print(table)
    table = Table(title="From a deadline to the fallback's first command (at most 40 ms)", title_justify="left")
    for column in ("silence", "switches", "p50 ms", "p99 ms", "max ms"):
        table.add_column(column, justify="left" if column == "silence" else "right")
    for stage, spread in figures["switch_ms_by_silence"].items():
        table.add_row(stage, str(spread["count"]), *(_ms(spread[key]) for key in ("p50", "p99", "max")))
    table.add_row("all", str(figures["switches"]), *map(_ms, figures["switch_ms"].values()))
    console.print(table)
    for violation in figures["first_violations"]:
        after = ", ".join(violation["after"])
        console.print(
            f"[red]{violation['rule']}[/red]: {violation['what']} "
            f"(world {violation['world']} at {violation['at_s']} s, after {after})"
        )
    if "endurance" in figures:
        endurance, memory = figures["endurance"], figures["endurance"]["memory_mib"]
        console.print(
            f"{endurance['simulated_h']:g} simulated hours with {endurance['faults']} faults: "
            f"{memory['after_first_minute']} MiB after the first minute, {memory['at_end']} MiB at the end "
            f"({endurance['growth']:+.1%} at most), {len(endurance['violations'])} violations, "
            f"{len(endurance['faulty_counters'])} contradicting counters."
        )
        for text in endurance["violations"] + endurance["faulty_counters"]:
            console.print(f"[red]{text}[/red]")
    console.print(
        f"{figures['faults']} faults of {figures['kinds']} kinds, {figures['commands']} commands judged in "
        f"{figures['simulated_s']:.0f} simulated seconds ({figures['ticks_per_s']} ticks/s): "
        f"{figures['violations']} violations."
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
