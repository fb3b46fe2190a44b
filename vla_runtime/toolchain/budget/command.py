"""Predict what one inference of a policy costs on a computer, and say what is impossible.

An analytical roofline (arXiv 2602.18397) of the stages vision, prefill and action: which bound holds, how far a
measurement is from the physical floor, which K a control loop may use, and what to change first.
"""

import argparse
import json
import sys
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetUsageError
from vla_runtime.toolchain.options import at_least

EPILOG = """examples:
  vla budget --policy pi0 --device agx-orin-64
  vla budget --policy pi0 --device agx-orin-64 --efficiency 1        (the bare roofline, VLA-Perf's figures)
  vla budget --policy pi0.5 --compare agx-orin-64 thor rtx-4090 --picture budget.png
  vla budget --policy openvla-7b --device agx-orin-64 --precision fp16 --claim action=60
  vla budget --bundle bundles/demo --device this --measured bench.json   (or: --measured now)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``vla budget``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    what = parser.add_argument_group("what is budgeted")
    what.add_argument(
        "--policy", metavar="NAME", help="a policy of the data files, a bundle's folder, or demo (default)"
    )
    what.add_argument("--bundle", metavar="DIR", type=Path, help="a bundle: its operators are read from its ONNX files")
    what.add_argument(
        "--device", metavar="NAME", help="a computer of the data files, or this (measured now; the default)"
    )
    what.add_argument("--precision", metavar="MODE",
                      help="number format, or MODE,STAGE=MODE: fp16,prefill=w4a16 (default: the policy's)")  # fmt: skip
    what.add_argument("--compare", metavar="NAME", nargs="+", default=[], help="more devices or policies, side by side")
    what.add_argument("--data", metavar="FILE", type=Path, action="append", default=[],
                      help="more hardware or policies: a YAML file or folder (also $VLA_BUDGET_DATA)")  # fmt: skip
    what.add_argument("--list", action="store_true", help="list policies, devices and number formats, and stop")
    change = parser.add_argument_group("numbers of the policy to replace")
    for name, text in (
        ("cameras", "images an inference sees"),
        ("image-tokens", "tokens an image becomes in the language model"),
        ("language-tokens", "instruction and state tokens"),
        ("horizon", "actions in a chunk"),
        ("steps", "flow steps of an inference"),
        ("tokens", "action tokens of an autoregressive head"),
        ("vocabulary", "rows of the head that an action token reads"),
    ):
        change.add_argument(f"--{name}", metavar="N", type=int, help=text)
    model = parser.add_argument_group("conventions")
    model.add_argument("--efficiency", metavar="X", type=float,
                       help="share of the roofline that is reached; 1 is the bare roofline (default: a published "
                            "measurement of the same thing, else the device class's)")  # fmt: skip
    model.add_argument("--bandwidth-unit", choices=("binary", "decimal"), default="binary",
                       help="bytes in a data sheet's GB: 2^30 as VLA-Perf reads it (default; the efficiencies were "
                            "taken against it), or 1e9 as vendors mean it; the floor is always decimal")  # fmt: skip
    model.add_argument(
        "--threads", metavar="N", type=int, help="CPU threads of 'this' (default: the measurement's, else 1)"
    )
    check = parser.add_argument_group("against measurements and claims")
    check.add_argument("--measured", metavar="FILE",
                       help="lay over: JSON of `vla bench policy`, or `ros2 topic echo policy/latency`; 'now' times a "
                            "bundle's stages here, in turn with their operators")  # fmt: skip
    check.add_argument("--claim", metavar="STAGE=MS", action="append", default=[],
                       help="a time that somebody claims, to hold against the floor (STAGE may be total)")  # fmt: skip
    loop = parser.add_argument_group("the control loop")
    loop.add_argument("--control-hz", metavar="HZ", type=float, default=50.0, help="control rate (default 50)")
    loop.add_argument(
        "--k", metavar="TICKS", type=int, help="control ticks between requests (default: the smallest safe K)"
    )
    loop.add_argument(
        "--deadline-ms", metavar="MS", type=float, help="the answer's deadline (default: end of the plan)"
    )
    loop.add_argument("--sync", action="store_true", help="stop and go instead of asynchronous execution")
    loop.add_argument("--reasoning-tokens", metavar="N", type=int, help="tokens written before the action")
    loop.add_argument(
        "--share", metavar="X", type=float, default=1.0, help="share of the inputs that reason (default 1)"
    )
    loop.add_argument("--steps-max", metavar="N", type=int, help="most steps an adaptive sampler may take")
    out = parser.add_argument_group("output")
    out.add_argument("--explain", action="store_true", help="show the operators")
    out.add_argument("--json", action="store_true", help="print JSON (schema: docs/budget.md)")
    out.add_argument("--markdown", action="store_true", help="print Markdown")
    out.add_argument("--picture", metavar="FILE", type=Path, help="draw stacked bars into a png, svg or pdf file")


def run(args: argparse.Namespace) -> int:
    """Run ``vla budget``; 0 also when something is flagged: the flags are the answer.

    Raises:
        UserError: a name, a number or a file that a budget cannot be made of.
    """
    from vla_runtime.toolchain.budget.assemble import catalogue, reports

    at_least(args, threads=1, steps_max=1)
    if args.json and args.markdown:
        raise BudgetUsageError("--json and --markdown cannot both be printed; choose one")
    if args.list:
        print(catalogue(args.data), end="")
        return 0
    results = reports(args)
    if args.picture:
        from vla_runtime.toolchain.budget.picture import write_picture

        print(f"picture: {write_picture(results, args.picture)}", file=sys.stderr)
    _print(args, results)
    return 0


def _print(args: argparse.Namespace, results: list) -> None:
    from vla_runtime.toolchain.budget import render
    from vla_runtime.toolchain.budget.json_form import as_dict, comparison_dict

    if args.json:
        whole = comparison_dict(results) if args.compare else as_dict(results[0])
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    elif args.markdown:
        print(render.markdown(results, explain=args.explain), end="")
    elif args.compare:
        render.print_comparison(results)
    else:
        render.print_report(results[0], explain=args.explain)


if __name__ == "__main__":
    from vla_runtime.cli import main

    sys.exit(main(["budget", *sys.argv[1:]]))
