"""Run the demo for minutes on end and show what grows: memory, handles and threads of each process, and what is left.

Starts `vla demo` and `vla monitor` as a user would, looks at their processes, presses Ctrl-C at the end and counts what
is still there: processes, and shared memory that they had mapped. Exit code 1 if anything is left, one has died, or a
node holds over 2 % more than after its first minute (a recorder's index grows with its bag). Fast DDS itself leaves a
file for each of its ports and takes it up again: these are listed apart.
"""

import argparse
import json
import os
import platform
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from vla_runtime.errors import UsageError, UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.demo.domains import domain_is_busy, held_domain
from vla_runtime.toolchain.demo.processes import TETHER
from vla_runtime.toolchain.soak_census import Census, Figures

SETTLED_S = 60.0
"""What a process has by then it is allowed to have: engines are warm, buffers have their size."""
MOST_GROWTH_PERCENT = 2.0
LOOK_EVERY_S = 10.0
LEAVE_WITHIN_S = 30.0
EPISODES = 10**6
_PORT = "fastdds_port"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="how long (default 30; at least 2)")
    parser.add_argument("--bundle", type=Path, default=share("bundles", "demo"), help="the policy: a bundle's folder")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="bag and logs (default: a temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")


def run(args: argparse.Namespace) -> int:
    """Soak, print the figures; 0 if nothing died, nothing grew and nothing was left."""
    if not args.minutes >= 2.0:
        raise UsageError(f"--minutes {args.minutes:g}: growth is counted from the first minute on, so give at least 2")
    with tempfile.TemporaryDirectory(prefix="vla-soak-") as folder:
        figures = soak(60.0 * args.minutes, args.bundle, args.out or Path(folder))
    print(as_text(figures))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    left = figures["left"]
    return 1 if figures["died"] or figures["grown"] or left["processes"] or left["shared_memory"] else 0


def soak(seconds: float, bundle: Path, out: Path) -> dict:
    """Run everything for ``seconds``, or until Ctrl-C; bag and logs go to ``out``.

    Returns:
        ``minutes``, ``machine``, ``load`` (one-minute averages at the looks: median and largest), ``processes`` (by
        name: :meth:`Census.growth`), ``grown`` and ``died`` (names), ``episodes``, ``successes``, ``bag_mib``, ``left``
        (after Ctrl-C; ``processes``: command lines, ``shared_memory`` and ``port_files``: names in /dev/shm) and
        ``ctrl_c_s``, how long that took.
    """
    out.mkdir(parents=True, exist_ok=True)
    # A shell's background job inherits Ctrl-C ignored, and so would its children. SIGTERM ends in the same order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with held_domain(domain_is_busy) as domain:
        return _soak(seconds, bundle, out, domain)


def _soak(seconds: float, bundle: Path, out: Path, domain: int) -> dict:
    census = Census(secrets.token_hex(8))
    environment = {**os.environ, **census.mark, "ROS_DOMAIN_ID": str(domain),
                   "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}  # fmt: skip
    log = out / "demo.log"
    demo = _start(["demo", "--episodes", str(EPISODES), "--bundle", str(bundle), "--domain", str(domain),
                   "--out", str(out / "demo")], environment, log)  # fmt: skip
    loads, died, elapsed = [], set(), 0.0
    started = [demo]
    try:
        if _waited(lambda: "episode 1 of" in log.read_text() or demo.poll() is not None, 120.0) and demo.poll() is None:
            started.append(_start(["monitor"], environment, out / "monitor.log"))
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < seconds and demo.poll() is None:
            died |= census.look(elapsed)
            loads.append(os.getloadavg()[0])
            time.sleep(max(0.0, LOOK_EVERY_S * len(loads) - (time.monotonic() - begin)))
        if demo.poll() is not None:
            raise UserError(f"the demo ended after {elapsed:.0f} s; its last words:\n{log.read_text()[-2000:]}")
        died |= census.look(elapsed)
    except KeyboardInterrupt:
        if not loads:
            raise
    finally:
        ctrl_c_s, left = _press_ctrl_c(started, census)
    said, processes = log.read_text(), census.growth(SETTLED_S)
    return {
        "minutes": round(elapsed / 60.0, 2),
        "date": datetime.now().strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load": {"median": sorted(loads)[len(loads) // 2], "max": max(loads)},
        "processes": processes,
        "grown": grown(processes),
        "died": sorted(died),
        "episodes": said.count(": lifted") + said.count(": did not lift"),
        "successes": said.count(": lifted after"),
        "bag_mib": round(sum(file.stat().st_size for file in (out / "demo" / "bag").rglob("*")) / 2**20, 1),
        "left": left,
        "ctrl_c_s": round(ctrl_c_s, 2),
    }


def _press_ctrl_c(started: list[subprocess.Popen], census: Census) -> tuple[float, dict[str, list[str]]]:
    """End all that was started as a user would: who is killed leaves shared memory. Returns (s it took, what is left).

    Whoever has not ended after ``LEAVE_WITHIN_S``, or when we are told again to end, is killed.
    """
    pressed = time.monotonic()
    try:
        for process in started:
            process.send_signal(signal.SIGINT)
        _waited(lambda: not census.alive(), LEAVE_WITHIN_S)
        segments = census.segments_left()
        return time.monotonic() - pressed, {
            "processes": census.alive(),
            "shared_memory": [each for each in segments if not each.startswith(_PORT)],
            "port_files": [each for each in segments if each.startswith(_PORT)],
        }
    finally:
        census.kill()


def grown(processes: Mapping[str, dict]) -> list[str]:
    """Return the names of nodes that hold over ``MOST_GROWTH_PERCENT`` more at the end than after the first minute."""
    nodes = {name: figures for name, figures in processes.items() if name.endswith("_node")}
    return [name for name, figures in nodes.items() if figures["percent"] > MOST_GROWTH_PERCENT]


def _start(words: list[str], environment: dict, log: Path) -> subprocess.Popen:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-u", "-m", TETHER, str(os.getpid()), "vla_runtime.cli", *words],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _waited(condition, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def as_text(figures: dict) -> str:
    """Return the figures as lines of at most 80 columns."""
    left = figures["left"]
    return "\n".join([
        f"{figures['minutes']:g} minutes, {figures['episodes']} episodes, {figures['successes']} lifted; "
        f"bag {figures['bag_mib']:.0f} MiB",
        *_rows(figures["processes"].items()),
        f"after Ctrl-C ({figures['ctrl_c_s']:.1f} s): {len(left['processes'])} processes, "
        f"{len(left['shared_memory'])} segments left (and {len(left['port_files'])} port files)",
        *(f"  left: {each}" for each in (*left["processes"], *left["shared_memory"])),
        *(f"  died on the way: {name}" for name in figures["died"]),
        *(f"  grew by more than {MOST_GROWTH_PERCENT:g} % after the first minute: {name}" for name in figures["grown"]),
    ])  # fmt: skip


def _rows(processes: Iterable[tuple[str, dict[str, Figures]]]) -> list[str]:
    rows = [f"{'process':<16}{'RSS MiB':>19}{'growth':>10}{'':>11}{'handles':>12}{'threads':>12}"]
    for name, figures in processes:
        settled, end = figures["settled"], figures["end"]
        rows.append(
            f"{name:<16}{settled['rss_mib']:>8.1f} ->{end['rss_mib']:>8.1f}{figures['percent']:>+8.1f} %"
            f"{figures['kib_per_min']:>+7.0f} K/m{settled['handles']:>5} ->{end['handles']:>4}"
            f"{settled['threads']:>5} ->{end['threads']:>4}"
        )
    return rows
