"""From the options of ``vla budget`` to reports."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vla_runtime.paths import share
from vla_runtime.toolchain.budget.bundles import read_bundle
from vla_runtime.toolchain.budget.efficiency import choose, load_measurements
from vla_runtime.toolchain.budget.errors import BudgetUsageError, require
from vla_runtime.toolchain.budget.hardware import Computer, Device, load_devices
from vla_runtime.toolchain.budget.overlay import Measured, read_measured
from vla_runtime.toolchain.budget.policies import PolicyShape, load_policies
from vla_runtime.toolchain.budget.precision import PRECISIONS
from vla_runtime.toolchain.budget.report import Branches, Loop, Report, published_report, report
from vla_runtime.toolchain.budget.subjects import Subject, find_subject

NOW = "now"
NUMBERS = ("cameras", "image_tokens", "language_tokens", "horizon", "steps", "tokens", "vocabulary")


def reports(args: argparse.Namespace) -> list[Report]:
    """Return the report that was asked for, and those to compare it with.

    Raises:
        BudgetError: a name, a number or a file that a budget cannot be made of.
    """
    world = _World(args)
    base = world.subject(args.policy or "demo", args.bundle)
    device = args.device or ("this" if not args.compare else None)
    wanted: list[tuple[Subject, str | None]] = []
    for name in args.compare:
        if name in world.devices or name == "this":
            wanted.append((base, name))
        else:
            wanted.append((world.subject(name), device))
    if args.device or any(place is None for _, place in wanted) or not wanted:
        wanted.insert(0, (base, device or "this"))
    wanted = [(subject, place or "this") for subject, place in wanted]
    once = {(subject.name, place): subject for subject, place in wanted}
    return [world.report(subject, place) for (_, place), subject in once.items()]


def catalogue(extra: Iterable[Path] = ()) -> str:
    """Return the lists of policies, devices and number formats as text."""
    lines = ["policies:"]
    lines += [f"  {name:<14}{shape.title}" for name, shape in sorted(load_policies(extra).items())]
    lines += [f"  {'demo':<14}the bundle under bundles/demo, read from its ONNX files"]
    lines += [f"  {'demo-fp32':<14}the same before its backbone was quantised", "", "devices:"]
    for name, device in load_devices(extra).items():
        lines.append(f"  {name:<14}{device.title}: {device.tflops.get('fp16', 0):g} TFLOPS fp16, "
                     f"{device.bandwidth_gb_s:g} GB/s, {device.memory_gb:g} GB")  # fmt: skip
    lines += [f"  {'this':<14}the computer that this runs on, measured", "", "number formats:"]
    lines += [f"  {name:<14}{mode.meaning}" for name, mode in PRECISIONS.items()]
    return "\n".join(lines) + "\n"


class _World:
    """The data files, and what the command line says about every budget alike."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.devices: Mapping[str, Device] = load_devices(args.data)
        self.policies: Mapping[str, PolicyShape] = load_policies(args.data)
        self.now = args.measured == NOW
        self.measured: Measured | None = read_measured(args.measured) if args.measured and not self.now else None
        self.claims = dict(map(_claim, args.claim))
        require(args.efficiency is None or 0 < args.efficiency < float("inf"),
                f"--efficiency must be above 0, not {args.efficiency!r}")  # fmt: skip
        require(0 <= args.share <= 1, f"--share must be within [0, 1], not {args.share!r}")
        self._this: Computer | None = None

    def subject(self, name: str, folder: Path | None = None) -> Subject:
        """Return a policy, or the bundle in ``folder``, with the numbers replaced that the command line gives."""
        args = self.args
        if folder is not None:
            subject = Subject(bundle=read_bundle(folder))
        else:
            subject = find_subject(name, self.policies, share("bundles"))
        numbers = {key: getattr(args, key) for key in NUMBERS}
        head = subject.shape.action if subject.shape else None
        if self.measured and numbers["steps"] is None and (subject.bundle or (head and head.kind == "flow")):
            numbers["steps"] = self.measured.steps
        if subject.shape:
            shape = subject.shape.changed(**numbers)
            if args.reasoning_tokens is not None and not shape.published:
                shape = shape.changed(reasoning_tokens=args.reasoning_tokens)
            return replace(subject, shape=shape)
        given = sorted(key for key, value in numbers.items() if value is not None and key != "steps")
        if given or args.reasoning_tokens:
            what = (given or ["reasoning_tokens"])[0].replace("_", "-")
            raise BudgetUsageError(f"--{what} cannot be changed in the bundle {subject.bundle.path}: its graphs fix it")
        return subject.with_steps(numbers["steps"]) if numbers["steps"] is not None else subject

    def report(self, subject: Subject, device: str) -> Report:
        """Return the report of one subject on one device."""
        args = self.args
        loop = Loop(args.control_hz, args.k, args.deadline_ms, not args.sync)
        if _published(subject):
            return self._published(subject, loop)
        computer = self._computer(device)
        if self.now and not (subject.bundle and device == "this"):
            raise BudgetUsageError(
                f"--measured {NOW} times the stages of a bundle on 'this'; {subject.name} on {device} cannot be run "
                "here: give the file of a measurement"
            )
        subject = subject.prepared(computer, whole=self.now)
        measured = Measured("now", dict(subject.whole_ms), subject.steps) if self.now else self.measured
        modes = subject.precisions(args.precision, computer)
        mode = modes["prefill"].name
        measurements = load_measurements(args.data) if subject.shape else []
        efficiency = choose(
            subject.shape, computer, mode, measurements, unit=args.bandwidth_unit, given=args.efficiency
        )
        branches = Branches(subject.shape.reasoning_tokens if subject.shape else 0, args.share, args.steps_max)
        return report(
            subject,
            computer,
            modes,
            efficiency,
            unit=args.bandwidth_unit,
            branches=branches,
            loop=loop,
            measured=measured,
            claims=self.claims,
        )

    def _published(self, subject: Subject, loop: Loop) -> Report:
        args = self.args
        published = subject.shape.published
        for option in () if args.compare else ("device", "precision", "measured", "claim", "efficiency"):
            if getattr(args, option):
                raise BudgetUsageError(
                    f"{subject.name} is a published stage profile ({published.device}), not shapes: it says nothing "
                    f"about --{option} {getattr(args, option)}; leave the option out"
                )
        tokens = published.reasoning_tokens if args.reasoning_tokens is None else args.reasoning_tokens
        return published_report(subject, Branches(tokens, args.share, args.steps_max), loop)

    def _computer(self, name: str) -> Computer:
        if name == "this":
            if self._this is None:
                from vla_runtime.toolchain.budget.measure import measure_this

                threads = self.args.threads or (self.measured.threads if self.measured else None) or 1
                self._this = measure_this(threads)
            return self._this
        if name not in self.devices:
            raise BudgetUsageError(f"device '{name}' is not known; choose one of {', '.join(self.devices)}, this")
        return self.devices[name]


def _published(subject: Subject) -> bool:
    return subject.shape is not None and subject.shape.published is not None


def _claim(text: str) -> tuple[str, float]:
    stage, _, value = text.partition("=")
    try:
        return stage.strip(), float(value)
    except ValueError:
        raise BudgetUsageError(f"--claim '{text}' must be STAGE=MS, e.g. action=60") from None
