"""Run the simulated robot with the real nodes over DDS, show what happens, and write a report.

Starts policy, executor, watchdog and a simulated arm in processes of their own, gives instructions, drives the arm
home between episodes as an operator would, and takes the figures from a recording. --fault shows a fault being caught.
"""

import argparse
import json
import os
import time
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from vla_runtime.errors import UsageError, UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.demo.domains import HIGHEST_DOMAIN, domain_is_busy, held_domain, held_if_free
from vla_runtime.toolchain.options import at_least
from vla_runtime.toolchain.own_command import own_command

HOME_S, SETTLE_S = 1.6, 0.5
STRIKE_AFTER_S, HEAL_AFTER_S = 1.2, 3.0


@dataclass(frozen=True)
class Episode:
    """One episode as it ended."""

    seed: int
    instruction: str
    success: bool
    wrong_object: bool
    lift_time_s: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla demo``."""
    parser.add_argument("--episodes", type=_positive, default=3, metavar="N", help="how many episodes (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="draws scenes and instructions (default: 0)")
    parser.add_argument(
        "--bundle",
        type=Path,
        default=share("bundles", "demo"),
        help="the policy: a bundle's folder (default: the demo's)",
    )
    parser.add_argument("--fault", choices=["slow", "hang", "kill", "nan", "stale_camera", "dead_executor"],
                        help="let this happen in the first episode")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for bag, logs and report (default: out/<time>)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--domain", type=int, metavar="ID", help="DDS domain (default: a free one)")
    parser.add_argument("--quiet", action="store_true", help="show nothing while it runs")


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when it ran, whatever the policy achieved."""
    from vla_runtime.toolchain.demo import processes as p

    at_least(args, seed=0)
    if not (args.bundle / "policy.yaml").is_file():
        raise UserError(f"there is no bundle at '{args.bundle}' (no policy.yaml); name one with --bundle")
    with _domain(args.domain) as domain:
        out = args.out or Path("out") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        out.mkdir(parents=True, exist_ok=True)
        os.environ.update(p.environment(domain))
        with p.Processes(out) as processes:
            episodes, extra = _perform(args, processes, out)
    return _finish(args, out, episodes, extra)


def _domain(wanted: int | None) -> AbstractContextManager[int]:
    if wanted is None:
        return held_domain(domain_is_busy)
    if not 0 <= wanted <= HIGHEST_DOMAIN:
        raise UsageError(f"--domain {wanted} is outside 0 to {HIGHEST_DOMAIN}")
    if domain_is_busy(wanted):
        raise UserError(f"in DDS domain {wanted} a vla_runtime or a simulated robot is running already; "
                        "choose another with --domain")  # fmt: skip
    return held_if_free(wanted)


def _perform(args, processes, out: Path) -> tuple[list[Episode], dict]:
    from vla_runtime.toolchain.demo.conductor import Conductor
    from vla_runtime.toolchain.demo.faults import FAULTS, FaultInjector
    from vla_runtime.toolchain.demo.live import LiveView
    from vla_runtime.toolchain.demo.stage import (
        CONTROL,
        Scene,
        cpu_seconds,
        set_stage,
        stolen_seconds,
        wait_until_driving,
    )

    script = _script(args.episodes, args.seed)
    fault = FAULTS[args.fault] if args.fault else None
    episodes: list[Episode] = []
    # Closed whatever happens: who leaves DDS without a word leaves shared memory behind.
    with closing(Conductor()) as conductor, LiveView(args.quiet) as view:
        view.note(f"logs and bag in {out}/")
        view.note("to look in from a second terminal:")
        shared = ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE")  # without the second, nothing is heard
        view.note("  " + " ".join(f"{name}={os.environ[name]}" for name in shared) + f" {own_command()} monitor")
        set_stage(processes, out / "bag", Scene(args.bundle, *script[0]), fault)
        wait_until_driving(processes, conductor, lambda: view.show("starting", conductor.view))
        yardstick = processes.start("yardstick", "vla_runtime.toolchain.loop_yardsticks", "thread")
        begin, cpu, stolen = time.monotonic(), cpu_seconds(processes), stolen_seconds()
        for index, (seed, instruction) in enumerate(script):
            title = f"episode {index + 1} of {len(script)}: {instruction}"
            injector = FaultInjector(fault, processes, conductor.tell_fault) if fault and index == 0 else None
            if injector:
                view.note(f"in this episode: {fault.story}")
            conductor.set_scene(seed, instruction)
            episodes.append(_episode(conductor, view, title, seed, instruction, injector))
            view.note(f"{title}: {_verdict(episodes[-1])}")
            if index == 0:
                view.note("TELEOP is the demo itself: it drives the arm back after each episode, as an operator would")
            conductor.drive_home(HOME_S, SETTLE_S, lambda title=title: view.show(title, conductor.view))
        elapsed = time.monotonic() - begin
        whole = fault is None or fault.kill not in CONTROL  # a killed process took its CPU time with it
        share_of_core = (cpu_seconds(processes) - cpu) / elapsed if whole else None
        took, total = (after - before for before, after in zip(stolen, stolen_seconds()))
    yardstick.stop()
    machine = {"bare_thread": _last_json(yardstick.log_path), "stolen_cpu_share": took / total}
    return episodes, {"seconds": elapsed, "control_cpu_share": share_of_core, "machine": machine}


def _last_json(path: Path) -> dict:
    """What a process that measures said last; empty if it said nothing."""
    lines = path.read_text().splitlines()
    return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def _script(count: int, seed: int) -> list[tuple[int, str]]:
    """Draw scenes (evaluation seeds, never trained on) and what to ask for; the colours take turns."""
    import numpy as np

    from vla_runtime.sim.task import COLOURS, EVALUATION_SEED, instruction_for

    rng = np.random.default_rng(seed)
    first = EVALUATION_SEED + 1000 * seed
    return [(first + i, instruction_for(COLOURS[i % len(COLOURS)], rng)) for i in range(count)]


def _episode(conductor, view, title: str, seed: int, instruction: str, injector) -> Episode:
    from vla_runtime.sim.task import TIME_LIMIT_S

    state = {"struck": False, "healed": False, "begin": time.monotonic()}
    limit_s = TIME_LIMIT_S + (HEAL_AFTER_S if injector else 0.0)

    def tick() -> None:
        view.show(title, conductor.view)
        since = time.monotonic() - state["begin"]
        if injector and not state["struck"] and since > STRIKE_AFTER_S:
            state["struck"] = True
            injector.strike()
        if injector and state["struck"] and not state["healed"] and since > STRIKE_AFTER_S + HEAL_AFTER_S:
            state["healed"] = True
            injector.heal()

    def decided() -> bool:
        robot = conductor.robot
        done = robot.get("seed") == seed and (robot.get("success") or robot.get("wrong_object"))
        return bool(done) and (injector is None or state["healed"])

    conductor.wait_for(decided, limit_s, tick)
    if injector and not state["healed"]:
        injector.heal()
    robot = conductor.robot
    return Episode(
        seed, instruction, bool(robot.get("success")), bool(robot.get("wrong_object")), robot.get("lift_time_s")
    )


def _verdict(episode: Episode) -> str:
    if episode.success:
        return f"lifted after {episode.lift_time_s:.1f} s"
    return "lifted the wrong cube" if episode.wrong_object else "did not lift it in time"


def _finish(args, out: Path, episodes: list[Episode], extra: dict) -> int:
    from rich.console import Console

    from vla_runtime.control.limits import Limits
    from vla_runtime.toolchain.demo.summary import figures_of, summary_table
    from vla_runtime.toolchain.report.command import write_report
    from vla_runtime.toolchain.run_log import read_run

    log = read_run(out / "bag", images_every_s=None)
    figures = figures_of(log, Limits.from_yaml(share("config", "robots", "so101_sim.yaml")))
    figures = {"episodes": len(episodes), "successes": sum(e.success for e in episodes),
               "wrong_object": sum(e.wrong_object for e in episodes), **figures, **extra,
               "fault": args.fault, "per_episode": [asdict(e) for e in episodes]}  # fmt: skip
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    report = out / "report.html"
    write_report(out / "bag", report, f"vla demo{f', fault: {args.fault}' if args.fault else ''}")
    if not args.quiet:
        Console().print(summary_table(figures))
        print(f"report: {report}")
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a number of episodes; give 1 or more")
    return value
