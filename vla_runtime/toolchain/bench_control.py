"""Measure the 50 Hz loop under inference load, beside two yardsticks in the same run.

Runs the whole demo (cameras, policy, executor, watchdog, simulated arm) and, at the same time, a bare sleeping thread
and a plain rclpy timer, each in a process of its own; then times the ticks of the pure control core. The yardsticks are
clocked where they wake; so is the watchdog's loop, by its own record of the last minute. Figures of the stream are
taken where the controller listens: the way through DDS belongs to them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from vla_runtime.errors import UsageError, UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.options import at_least

PRIORITY = 50
SETTLE_S, UNRECORDED_S = 2.0, 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla bench control``."""
    parser.add_argument("--seconds", type=float, default=75.0, metavar="S",
                        help="how long to measure; the watchdog's record holds a minute (default: 75)")  # fmt: skip
    parser.add_argument("--bundle", type=Path, default=share("bundles", "demo"), help="policy that makes the load")
    parser.add_argument("--joints", type=int, default=14, help="joints in the tick benchmark (default: 14)")
    parser.add_argument("--horizon", type=int, default=100, help="rows of a chunk in the tick benchmark (default: 100)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print a table."""
    from vla_runtime.toolchain.tick_bench import bench_ticks

    at_least(args, joints=2, horizon=2)
    if not 5 <= args.seconds < float("inf"):
        raise UsageError(f"--seconds {args.seconds:g} is too short for a 99th percentile; give 5 or more")
    if not (args.bundle / "policy.yaml").is_file():
        raise UserError(f"there is no bundle at '{args.bundle}'; name one with --bundle")
    figures = {"seconds": args.seconds, **measure_loops(args.seconds, args.bundle)}
    figures["ticks"] = _with_priority(lambda: bench_ticks(args.joints, args.horizon))
    figures["ticks"] |= {"joints": args.joints, "horizon": args.horizon}
    for yardstick in ("bare_thread", "rclpy_timer"):
        own = figures[yardstick]["period_error_p99_ms"]
        figures[f"ratio_to_{yardstick}"] = figures["watchdog"]["period_error_p99_ms"] / own
        figures[f"arrival_ratio_to_{yardstick}"] = figures["stream"]["period_error_p99_ms"] / own
    _print(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def measure_loops(seconds: float, bundle: Path) -> dict:
    """Run the demo's processes and both yardsticks side by side.

    Returns:
        ``stream`` (as it arrived at the controller), ``executor`` and ``watchdog`` (what the nodes say of their own
        loops), ``bare_thread``, ``rclpy_timer``, ``control_cpu_share`` (of one core, both control processes, while all
        topics and their traces are recorded), ``control_cpu_share_unrecorded`` (afterwards, with no recorder),
        ``machine`` (``stolen_cpu_share``).
    """
    from vla_runtime.toolchain.demo import processes as p
    from vla_runtime.toolchain.demo.conductor import Conductor
    from vla_runtime.toolchain.demo.domains import domain_is_busy, held_domain
    from vla_runtime.toolchain.demo.figures import stream_figures
    from vla_runtime.toolchain.demo.stage import Scene, cpu_seconds, set_stage, stolen_seconds, wait_until_driving
    from vla_runtime.toolchain.run_log import read_run

    with held_domain(domain_is_busy) as domain, tempfile.TemporaryDirectory() as folder:
        os.environ.update(p.environment(domain))
        out = Path(folder)
        with p.Processes(out) as processes:
            conductor = Conductor()
            set_stage(processes, out / "bag", Scene(bundle, 0, "pick up the red cube"), None)
            wait_until_driving(processes, conductor, lambda: None)
            begin, cpu, stolen = time.monotonic(), cpu_seconds(processes), stolen_seconds()
            yardsticks = {name: _yardstick(name, seconds) for name in ("thread", "timer")}
            conductor.wait_for(lambda: False, seconds + 1.0, lambda: None)
            outputs = {name: json.loads(child.communicate(timeout=30)[0]) for name, child in yardsticks.items()}
            share_of_core = (cpu_seconds(processes) - cpu) / (time.monotonic() - begin)
            took, total = (after - before for before, after in zip(stolen, stolen_seconds()))
            loops = conductor.view().loops
            processes.by_name["record"].stop()
            conductor.wait_for(lambda: False, SETTLE_S, lambda: None)
            begin, cpu = time.monotonic(), cpu_seconds(processes)
            conductor.wait_for(lambda: False, UNRECORDED_S, lambda: None)
            unrecorded = (cpu_seconds(processes) - cpu) / (time.monotonic() - begin)
            conductor.close()
        commands = read_run(out / "bag", images_every_s=None).commands
    return {
        "stream": stream_figures(commands[50:-50]),
        **{
            name: {key: _number(value) for key, value in loops.get(name, {}).items()}
            for name in ("executor", "watchdog")
        },
        "bare_thread": outputs["thread"],
        "rclpy_timer": outputs["timer"],
        "control_cpu_share": share_of_core,
        "control_cpu_share_unrecorded": unrecorded,
        "machine": {"stolen_cpu_share": took / total},
    }


def _yardstick(name: str, seconds: float) -> subprocess.Popen:
    module = "vla_runtime.toolchain.loop_yardsticks"
    return subprocess.Popen([sys.executable, "-m", module, name, "--seconds", str(seconds)], stdout=subprocess.PIPE)


def _with_priority(work):
    """Run in a thread with the priority that the control loops have, so that other load is not counted as work."""
    from vla_runtime.nodes.realtime import own_thread_realtime, prepare_interpreter

    results: list = []

    def body() -> None:
        own_thread_realtime(PRIORITY)
        results.append(work())

    prepare_interpreter()
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return results[0]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _print(figures: dict) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"50 Hz beside inference, {figures['seconds']:.0f} s", title_justify="left", width=78)
    for column in ("loop", "rate [Hz]", "|period - 20 ms| p99 [ms]", "largest gap [ms]"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    rows = [("the watchdog's loop", figures["watchdog"], "rate_hz"),
            ("commands at the controller", figures["stream"], "command_rate_hz"),
            ("bare sleeping thread", figures["bare_thread"], "rate_hz"),
            ("rclpy timer", figures["rclpy_timer"], "rate_hz")]  # fmt: skip
    for name, row, rate in rows:
        table.add_row(name, f"{row[rate]:.2f}", f"{row['period_error_p99_ms']:.3f}", f"{row['max_gap_ms']:.2f}")
    console = Console()
    console.print(table)
    stolen, alone = figures["machine"]["stolen_cpu_share"], figures["control_cpu_share_unrecorded"]
    console.print(f"The loop's p99 is {figures['ratio_to_bare_thread']:.2f} times the bare thread's and "
                  f"{figures['ratio_to_rclpy_timer']:.2f} times the rclpy timer's, where commands arrive "
                  f"{figures['arrival_ratio_to_bare_thread']:.2f} and {figures['arrival_ratio_to_rclpy_timer']:.2f} "
                  f"times. Both control processes use {100 * figures['control_cpu_share']:.1f} % of one core, "
                  f"{100 * alone:.1f} % when nothing is recorded; "
                  f"the host stole {100 * stolen:.1f} % of this machine's CPU time.")  # fmt: skip
    ticks = figures["ticks"]
    for core in ("executor", "watchdog"):
        console.print(f"{core}.tick with {ticks['joints']} joints, H = {ticks['horizon']}: p50 "
                      f"{ticks[core]['p50_ms']:.3f} ms, p99 {ticks[core]['p99_ms']:.3f} ms")  # fmt: skip
