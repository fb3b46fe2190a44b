"""Run closed-loop episodes of a bundle on the simulated arm, on simulated time, and report how it did.

The same executor, watchdog, controller and cameras as the nodes use, without ROS. With a fixed delay the result is the
same on every machine. Seeds are those that training never sees.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vla_runtime.control.executor_settings import EXECUTOR_TABLE
from vla_runtime.errors import UsageError, UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.options import at_least

BLENDS = ("cut", "crossfade", "rtc", "ensemble")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla eval``."""
    add_policy_arguments(parser)
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="how many scenes (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first of N seeds (default: 0)")
    parser.add_argument("--k", type=int, metavar="TICKS", help="control periods between requests (default: executor's)")
    parser.add_argument(
        "--delay", default="3", metavar="TICKS",
        help="inference delay in control periods of 20 ms; 'measured': what it takes on this machine (default: 3)",
    )  # fmt: skip
    parser.add_argument("--blend", choices=BLENDS, help="how a new plan takes over (default: executor's)")
    parser.add_argument("--no-prefix", action="store_true", help="do not tell the policy what is committed")
    parser.add_argument(
        "--each-colour", action="store_true", help="run every scene once with each colour's instruction"
    )
    parser.add_argument(
        "--time-limit", type=float, default=8.0, metavar="S", help="simulated seconds of an episode (default: 8)"
    )
    parser.add_argument("--json", metavar="FILE", help="write figures and episodes to FILE ('-': standard output)")


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names a policy and the engine that runs it."""
    parser.add_argument(
        "--bundle",
        type=Path,
        default=share("bundles", "demo"),
        help="the policy: a bundle's folder (default: the demo's)",
    )
    parser.add_argument("--engine", default="auto", help="engine to run it on (default: auto)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a stage (default: 1)")
    parser.add_argument("--allow-unproven", action="store_true", help="run an engine without a passing parity record")


def run(args: argparse.Namespace) -> int:
    """Run ``vla eval``; 0 when all episodes ran, whatever the policy achieved."""
    from vla_runtime.sim.closed_loop import ClosedLoop
    from vla_runtime.sim.episode import summarise
    from vla_runtime.sim.task import TIME_LIMIT_S

    at_least(args, episodes=1, seed=0, threads=1)
    if not 0.1 <= args.time_limit <= TIME_LIMIT_S:
        raise UsageError(f"--time-limit is {args.time_limit:g}; it must be 0.1 to {TIME_LIMIT_S:g} s")
    settings = loop_settings(args.delay, args.k, args.blend, not args.no_prefix, args.time_limit)
    policy = load(args)
    runs = list(plan(args.episodes, args.seed, args.each_colour))
    report = progress(len(runs))
    results = []
    with make(ClosedLoop, policy, settings) as loop:
        for seed, instruction in runs:
            results.append(loop.run(seed, instruction))
            report(results)
    figures = {
        "bundle": str(args.bundle),
        "delay_ticks": args.delay,
        "executor": dict(settings.executor),
        "send_prefix": settings.send_prefix,
        **summarise(results),
    }
    write_json(args.json, {**figures, "runs": [_row(result) for result in results]})
    if args.json != "-":
        print(text(figures))
    return 0


def plan(episodes: int, first: int, each_colour: bool) -> Iterable[tuple[int, str | None]]:
    """Seeds (above those of training) and instructions (None: drawn from the seed)."""
    from vla_runtime.sim.task import COLOURS, EVALUATION_SEED

    for k in range(episodes):
        seed = EVALUATION_SEED + first + k
        if each_colour:
            yield from ((seed, f"pick up the {colour} cube") for colour in COLOURS)
        else:
            yield seed, None


def load(args: argparse.Namespace) -> Any:
    """The policy that the arguments name, warm. Raises UserError."""
    from vla_runtime.engines.settings import EngineSettings
    from vla_runtime.policy.policy import load_policy

    if not (args.bundle / "policy.yaml").is_file():
        raise UserError(f"there is no bundle at '{args.bundle}' (no policy.yaml); name one with --bundle")
    settings = EngineSettings(threads=args.threads)
    policy = load_policy(args.bundle, args.engine, allow_unproven=args.allow_unproven, settings=settings)
    policy.warm_up()
    return policy


def loop_settings(delay: str, k: int | None, blend: str | None, send_prefix: bool, time_limit_s: float) -> Any:
    """LoopSettings from arguments. Raises UsageError for a K or a delay that cannot be."""
    from vla_runtime.sim.closed_loop import LoopSettings, fixed_delay, measured_delay

    reason = EXECUTOR_TABLE["k"].check(k)[1] if k is not None else ""
    if reason:
        raise UsageError(f"--k: {reason}")
    executor = {name: value for name, value in (("k", k), ("blend", blend)) if value is not None}
    try:
        chosen = measured_delay() if delay == "measured" else fixed_delay(float(delay))
    except ValueError as problem:
        raise UsageError(f"--delay is '{delay}'; give control periods (0, 1, 2.5, ...) or 'measured'") from problem
    return LoopSettings(delay=chosen, executor=executor, send_prefix=send_prefix, time_limit_s=time_limit_s)


def make(closed_loop: Callable, policy: Any, settings: Any) -> Any:
    """A ClosedLoop; what is wrong with the settings or the scene as a UserError."""
    try:
        return closed_loop(policy, settings)
    except ValueError as problem:
        raise UserError(str(problem)) from problem


def progress(total: int) -> Callable[[list], None]:
    """A function to be called with the results so far; writes to standard error, on a terminal after each episode."""

    def report(results: list) -> None:
        done, good = len(results), sum(result.success for result in results)
        if sys.stderr.isatty():
            print(f"\repisode {done} of {total}: {good} succeeded", end="\n" if done == total else "", file=sys.stderr)
        elif done % 10 == 0 or done == total:
            print(f"episode {done} of {total}: {good} succeeded", file=sys.stderr)

    return report


def write_json(path: str | None, content: dict[str, Any]) -> None:
    """Write to a file, or to standard output for '-'; None writes nothing."""
    if path == "-":
        json.dump(content, sys.stdout, indent=2)
        print()
    elif path:
        Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def text(figures: dict[str, Any]) -> str:
    """The figures as lines for people."""
    low, high = figures["success_interval"]
    seams, inference = figures["seam_jump_rad"], figures["inference_ms"]
    lines = [
        f"success            {figures['successes']} of {figures['episodes']} "
        f"({figures['success_rate']:.1%}, 95 % between {low:.1%} and {high:.1%})",
        f"wrong object       {figures['wrong_object']}",
        f"time to lift       p50 {figures['lift_time_s']['p50']:.2f} s, max {figures['lift_time_s']['max']:.2f} s",
        f"inference here     p50 {inference['p50']:.1f} ms, p99 {inference['p99']:.1f} ms "
        f"(simulated delay: {figures['delay_ticks']} ticks)",
        f"seam jump          p50 {seams['p50']:.4f} rad, p95 {seams['p95']:.4f} rad, max {seams['max']:.4f} rad",
        f"jerk               {figures['jerk_rms']:.1f} rad/s^3 rms",
        f"starved            {figures['starved_share']:.2%} of the control periods",
        f"deadline misses    {figures['deadline_misses']}",
        f"refused plans      {figures['refused_plans']}",
        f"rejected messages  {figures['rejected_messages']}",
        f"elapsed executed   {figures['elapsed_executed']}",
        f"limit violations   {figures['limit_violations']} {figures['violations'] or ''}".rstrip(),
    ]
    return "\n".join(lines)


def _row(result: Any) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "instruction": result.instruction,
        "how": result.how,
        "lift_time_s": result.lift_time_s,
        "duration_s": round(result.duration_s, 3),
        "seam_jump_max_rad": round(max(result.seam_jumps, default=0.0), 5),
        "jerk_rms": round(result.jerk, 2),
        "starved_ticks": result.starved_ticks,
        "time_in_state_s": {state: round(seconds, 3) for state, seconds in result.time_in_state_s.items()},
    }
