"""Store a stage of a bundle in another precision: INT4 (AWQ, group 128, symmetric), INT8, or float16.

INT4 and INT8 are calibrated on observations. Run it once for each stage that is to change. The result is a new bundle
that needs a parity record of its own: `vla parity OUT --reference BUNDLE`.
"""

import argparse
from pathlib import Path

import onnx

from vla_runtime.errors import UsageError, UserError
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.toolchain.observations import REFERENCE_FILE, ObservationSet, load_observations, random_observations
from vla_runtime.toolchain.options import at_least
from vla_runtime.toolchain.quantize.bundle import write_quantised
from vla_runtime.toolchain.quantize.calibration import choose, stage_inputs
from vla_runtime.toolchain.quantize.half import to_half
from vla_runtime.toolchain.quantize.int8 import quantise_int8
from vla_runtime.toolchain.quantize.stage import METHODS, StageReport, quantise_graph
from vla_runtime.toolchain.recorded import FIRST_SEED, record_observations
from vla_runtime.toolchain.weights import weight_bytes

# What a stage may be stored in before: never what was rounded further already
STARTS = {"int4": ("fp32", "fp16"), "int8": ("fp32",), "fp16": ("fp32",)}
PRECISIONS = tuple(STARTS)
BLOCKS = (16, 32, 64, 128, 256)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla quantize``."""
    parser.add_argument("bundle", help="the bundle to start from (fp32 or fp16)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the quantised bundle goes (must not exist)")
    parser.add_argument("--stage", default="backbone", help="which stage (default: backbone)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="int4",
        help="int4: weights alone, for decode and memory; "
        "int8: weights and activations, for prefill and flow steps; fp16: for GPUs (default: int4)",
    )
    parser.add_argument("--method", choices=METHODS, default="awq", help="awq, or rtn: round to nearest (default: awq)")
    parser.add_argument("--observations", metavar="FILE", help="recorded observations to calibrate on")
    parser.add_argument(
        "--count", type=int, default=256, help="observations to calibrate on, 256 to 1024 (default: 256)"
    )
    parser.add_argument("--block", type=int, default=128, help="inputs that share a scale (default: 128)")
    parser.add_argument("--no-feedback", action="store_true", help="round each weight alone (no error feedback)")
    parser.add_argument("--no-clip", action="store_true", help="leave out the search for each group's range")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="keep layers of this name as they are"
    )
    parser.add_argument("--record", type=int, metavar="N", help="calibrate on N episodes of it in the simulator")
    parser.add_argument("--random", action="store_true", help="calibrate on random observations, for trying out only")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of observations (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Run ``vla quantize``."""
    at_least(args, count=1, record=1, seed=0)
    if args.block not in BLOCKS:
        raise UsageError(f"--block is {args.block}; it must be one of {', '.join(map(str, BLOCKS))}")
    bundle = load_bundle(args.bundle)
    out = Path(args.out)
    _check(args, bundle, out)
    path = bundle.stage_path(args.stage)
    with _progress() as bar:
        model, report, calibration = _convert(args, bundle, onnx.load(str(path)), bar)
    made = write_quantised(bundle, args.stage, args.precision, model, report, out, calibration)
    _print(report)
    before, after = weight_bytes(path), weight_bytes(made.stage_path(args.stage))
    print(f"{args.stage}: {before / 1e6:.2f} MB -> {after / 1e6:.2f} MB")
    first = "THE FIRST BUNDLE" if "quantized_from" in bundle.policy.provenance else args.bundle
    print(f"next: vla parity {out} --reference {first}")
    return 0


def _convert(
    args: argparse.Namespace, bundle, model: onnx.ModelProto, bar
) -> tuple[onnx.ModelProto, StageReport, dict]:
    """Return the converted graph, what was done to its layers, and what it was calibrated on."""
    if args.precision == "fp16":
        return to_half(model), StageReport("fp16"), {}
    observations = choose(_observations(args, bundle, bar), args.count, args.seed)
    inputs = stage_inputs(bundle, args.stage, observations, bar("calibration inferences"))
    calibration = {"observations": observations.source, "count": len(observations)}
    if args.precision == "int8":
        made = quantise_int8(model, inputs, exclude=args.exclude, progress=bar("groups of layers"))
        return *made, calibration
    options = {"clip": not args.no_clip, "feedback": not args.no_feedback}
    made = quantise_graph(
        model,
        inputs,
        method=args.method,
        block=args.block,
        **options,
        exclude=args.exclude,
        progress=bar("groups of layers"),
    )
    return *made, calibration | options


def _check(args: argparse.Namespace, bundle, out: Path) -> None:
    if args.stage not in bundle.policy.stages:
        raise UsageError(f"--stage is '{args.stage}'; {bundle.path} has {list(bundle.policy.stages)}")
    now = bundle.policy.stages[args.stage].precision
    if now not in STARTS[args.precision]:
        raise UserError(
            f"{bundle.path}: stage '{args.stage}' is {now} already, and {args.precision} is made of "
            f"{' or '.join(STARTS[args.precision])}; start from the bundle that it was made from"
        )
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out} exists and is not empty; choose another directory, or remove it")


def _observations(args: argparse.Namespace, bundle, bar) -> ObservationSet:
    if args.record is not None:
        return record_observations(bundle, range(FIRST_SEED, FIRST_SEED + args.record), bar("episodes"))
    if args.observations:
        return load_observations(Path(args.observations), bundle.policy)
    if args.random:
        return random_observations(bundle.policy, args.count, args.seed)
    raise UsageError(
        "there is nothing to calibrate on: give recorded observations with --observations FILE, or record some in the "
        f"simulator with --record N (random ones, --random, do not show which inputs matter; the bundle's own "
        f"{REFERENCE_FILE} is for parity alone)"
    )


def _progress():
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bars():
        with Progress(console=Console(stderr=True), transient=True) as progress:

            def bar(label: str):
                task = progress.add_task(label, total=None)
                return lambda done, total: progress.update(task, completed=done, total=total)

            yield bar

    return bars()


def _print(report: StageReport) -> None:
    if not report.layers:
        return
    print(f"{report.method}: relative output error of each layer (squared), rounding -> chosen")
    for each in report.layers:
        shape = f"{each.shape[0]}x{each.shape[1]}"
        print(f"  {each.output:<28} {shape:<11} block {each.block:<4} {each.rtn_error:.2e} -> {each.error:.2e}")
    for each in report.skipped:
        print(f"  {each.output:<28} {each.shape[0]}x{each.shape[1]:<6} kept: {each.why}")
