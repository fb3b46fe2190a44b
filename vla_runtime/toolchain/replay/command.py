"""Run the decisions of a recorded run again, without ROS.

Without options: every call of the executor and the watchdog in the bag's traces is asked again, and each answer
must be the same bit for bit; with --infer the policy's answers too. With --set, --map, --bundle or --rehearse: what
would have happened, on simulated time, on the recorded inputs, with other parameters, another policy, or on the bag
of another robot.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from vla_runtime.errors import UsageError, UserError
from vla_runtime.toolchain.options import at_least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla replay``."""
    parser.add_argument("bag", type=Path, help="the rosbag2 folder")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="compare N times (default: 1)")
    parser.add_argument(
        "--infer", type=Path, metavar="BUNDLE", help="also compute the policy's answers again, and compare"
    )
    parser.add_argument("--rehearse", action="store_true", help="run anew on the recorded inputs")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes",
                        help="a parameter, as in --set k=12; may be repeated")  # fmt: skip
    parser.add_argument("--map", type=Path, metavar="YAML", help="which of the bag's topics and joints are what")
    parser.add_argument("--bundle", type=Path, help="let this policy answer, on the recorded pictures")
    parser.add_argument("--robot", default="", help="limits: a robot file, or a name in config/robots")
    parser.add_argument("--latency", type=float, metavar="S", help="how long an answer takes (default: as recorded)")
    parser.add_argument("--arm", choices=("follows", "recorded"), default="follows",
                        help="the arm follows each command, or does what it did then (default: follows)")  # fmt: skip
    parser.add_argument("--allow-unproven", action="store_true", help="run a bundle's engine without a parity record")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write the rehearsed run as a bag (for vla report)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")


def run(args: argparse.Namespace) -> int:
    """Compare, or rehearse. Returns 1 when a decision came out different."""
    at_least(args, times=1, latency=0)
    rehearsal = bool(args.rehearse or args.changes or args.map or args.bundle or args.out)
    figures, failed = _rehearse(args) if rehearsal else _compare(args)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    return int(failed)


def _compare(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    from vla_runtime.toolchain.replay.exact import read_traces, replay

    traces = read_traces(args.bag)
    if traces.empty:
        raise UserError(
            f"'{args.bag}' has no traces (executor/trace, watchdog/trace): it was recorded with the parameter trace "
            "off, or more than 20 s after the nodes were configured, or by another program. Its inputs can still be "
            "used: --rehearse, with --map for a bag of others"
        )
    failed, rows = False, []
    for session in traces.sessions:
        outcome = replay(session)
        for _ in range(args.times - 1):
            again = replay(session)
            outcome = outcome if again.same else again
        failed = failed or not outcome.same
        result = "equal" if outcome.same else "DIFFERENT"
        print(f"{session.node}: {outcome.equal} of {outcome.calls} calls {result}, {outcome.ticks} of them ticks"
              + (f", {args.times} times" if args.times > 1 else ""))  # fmt: skip
        if outcome.difference:
            print(f"  {outcome.difference}")
        if session.lost:
            print("  the recording has a gap; what came after it cannot be compared")
        rows.append({"node": session.node, "calls": outcome.calls, "equal": outcome.equal, "ticks": outcome.ticks,
                     "kinds": outcome.kinds, "difference": outcome.difference, "times": args.times})  # fmt: skip
    for node, count in traces.headless.items():
        print(f"{node}: {count} calls not compared: their beginning is not in the bag. Record from before the nodes "
              "are configured (record:= of the launch file)")  # fmt: skip
    if not traces.sessions:
        raise UserError("nothing to compare: the bag begins after the nodes were configured")
    figures: dict[str, Any] = {"sessions": rows, "headless": traces.headless}
    if args.infer:
        figures["answers"], different = _infer(args)
        failed = failed or different
    return figures, failed


def _infer(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    from vla_runtime.policy.policy import load_policy
    from vla_runtime.toolchain.replay.inference import recompute

    policy = load_policy(args.infer, allow_unproven=args.allow_unproven)
    policy.warm_up()
    out = recompute(args.bag, policy)
    if not out.answers:
        raise UserError(f"'{args.bag}' has no policy/trace: its answers cannot be computed again")
    if not out.compared:
        raise UserError(f"'{args.bag}' lacks pictures of each of its {out.answers} answers: record without --image-hz")
    print("\n".join(out.lines()))
    return {"answers": out.answers, "equal": out.equal, "without_pictures": out.without_pictures}, not out.same


def parameter_changes(words: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort ``name=value`` words into changes for the executor and for the watchdog. Raises UsageError."""
    from vla_runtime.control.executor_settings import EXECUTOR_TABLE
    from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE

    tables = (EXECUTOR_TABLE, WATCHDOG_TABLE)
    changes: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise UsageError(f"--set {word}: expected name=value, as in --set k=12")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UsageError(f"--set {word}: '{text}' is not a value") from None
        found = False
        for table, change in zip(tables, changes):
            if name in table.defaults():
                change[name], reason = table[name].check(value)
                found = True
                if reason:
                    raise UsageError(f"--set {word}: {reason}")
        if not found:
            known = ", ".join(sorted({*tables[0].defaults(), *tables[1].defaults()}))
            raise UsageError(f"--set {name}: neither executor nor watchdog has this parameter; they have: {known}")
    return changes


def _rehearse(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    from vla_runtime.control.executor_settings import executor_settings
    from vla_runtime.control.watchdog_settings import watchdog_settings
    from vla_runtime.toolchain.replay.rehearsal import rehearse
    from vla_runtime.toolchain.replay.setting import scene

    for_executor, for_watchdog = parameter_changes(args.changes)
    stage = scene(args)
    try:
        executor = executor_settings(**{**stage.executor, **for_executor})
        watchdog = watchdog_settings(**{**stage.watchdog, **for_watchdog})
    except ValueError as error:
        raise UserError(str(error)) from error
    result = rehearse(stage.limits, executor, watchdog, stage.measured, stage.answers, stage.duration, args.arm)
    figures = {"set": {**for_executor, **for_watchdog}, **result.summary()}
    for name, value in figures.items():
        lines = value if isinstance(value, list) else [value]
        for i, line in enumerate(lines):
            print(f"{name if i == 0 else '':<26}{line}")
    if args.out:
        from vla_runtime.toolchain.replay.write import write_rehearsal

        write_rehearsal(args.out, result, args.bag, stage)
        print(f"written: {args.out} (vla report {args.out})")
    return figures, False
