"""Build the TensorRT engines of a bundle for a device. Built plans are kept and reused; what is there is not rebuilt.

TensorRT builds on the device itself. TensorRT-RTX (desktop cards) also builds without a GPU, for named compute
capabilities: --engine tensorrt_rtx --sm 86,89.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vla_runtime.engines.plans import PlanKey, default_cache, lookup, store
from vla_runtime.engines.tensorrt_api import TensorRtApi, load_api
from vla_runtime.engines.tensorrt_build import BuildOptions, Report, build_plan
from vla_runtime.errors import UsageError
from vla_runtime.policy.bundle import Bundle, load_bundle

ENGINES = ("tensorrt", "tensorrt_rtx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vla build``."""
    parser.add_argument("bundle", help="the bundle to build engines for")
    parser.add_argument("--engine", choices=ENGINES, default="tensorrt", help="which builder (default: tensorrt)")
    parser.add_argument("--sm", metavar="SM[,SM]", help="compute capabilities, e.g. 86,89; tensorrt_rtx only")
    parser.add_argument("--cache", metavar="DIR", help="where plans are kept (default: ~/.cache/vla_runtime/engines)")
    parser.add_argument("--force", action="store_true", help="build again what is there")


def run(args: argparse.Namespace) -> int:
    """Run ``vla build``."""
    wanted = _wanted(args)
    bundle = load_bundle(args.bundle)
    api = load_api(args.engine)
    capabilities = _capabilities(wanted, api)
    cache = Path(args.cache) if args.cache else default_cache()
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def report(phase: str, done: int, total: int) -> None:
            progress.update(task, description=phase, completed=done, total=total or None)

        lines = build_bundle(bundle, api, capabilities, cache, force=args.force, report=report)
    print("\n".join(lines))
    return 0


def build_bundle(
    bundle: Bundle,
    api: TensorRtApi,
    capabilities: Sequence[int],
    cache: Path,
    *,
    force: bool = False,
    report: Report = lambda *_: None,
) -> list[str]:
    """Build every stage for every capability that has no plan yet; return one line about each."""
    lines = []
    for stage, model in bundle.policy.stages.items():
        for sm in capabilities:
            key = PlanKey(stage, bundle.policy.files[model.file], api.flavour, api.version, sm)
            plan = None if force else lookup(cache, key)
            if plan is not None:
                lines.append(f"{stage}: SM {sm / 10:.1f}, {len(plan) / 1e6:.2f} MB, was there already")
                continue
            options = BuildOptions((sm,), cache / f"timing-{api.flavour}-{api.version}-sm{sm}.cache")
            plan = build_plan(api, bundle.stage_path(stage), options, report)
            path = store(cache, key, plan)
            lines.append(f"{stage}: SM {sm / 10:.1f}, {len(plan) / 1e6:.2f} MB, built: {path}")
    return lines


def _wanted(args: argparse.Namespace) -> list[int]:
    """Return the capabilities that --sm names; none: those of the device here."""
    if args.sm is None:
        return []
    if args.engine != "tensorrt_rtx":
        raise UsageError(
            "--sm needs --engine tensorrt_rtx: TensorRT builds for the device that it runs on, and only there"
        )
    try:
        return [int(each) for each in args.sm.split(",")]
    except ValueError:
        raise UsageError(f"--sm is '{args.sm}'; write capabilities without a point, e.g. 86,89") from None


def _capabilities(wanted: list[int], api: TensorRtApi) -> list[int]:
    if not wanted:
        from vla_runtime.engines.tensorrt_engine import device_sm, gpu_arrays

        return [device_sm(gpu_arrays(api.flavour))]
    for each in wanted:
        api.capability(each)
    return wanted
