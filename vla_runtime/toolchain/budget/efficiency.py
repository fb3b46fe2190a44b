"""Which efficiency a prediction uses: a given one, one that somebody measured for the same thing, or the class's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.files import Entry, data_files, read_yaml
from vla_runtime.toolchain.budget.hardware import Computer, Efficiency
from vla_runtime.toolchain.budget.policies import PolicyShape
from vla_runtime.toolchain.budget.precision import precision
from vla_runtime.toolchain.budget.roofline import evaluate
from vla_runtime.toolchain.budget.stages import stages_of

_KEYS = {"policy", "device", "precision", "configuration", "total_ms", "source"}
_COUNTS = {"cameras", "image_tokens", "language_tokens", "horizon", "steps", "tokens"}


@dataclass(frozen=True)
class Measurement:
    """A published end-to-end time of a policy on a device, and the numbers it was taken with."""

    policy: str
    device: str
    precision: str
    configuration: Mapping[str, int]
    total_ms: float
    source: str


def load_measurements(extra: Iterable[Path] = ()) -> list[Measurement]:
    """Read the ``measurements`` of all data files; those of later files come first.

    Raises:
        BudgetError: an entry is malformed; the text names file, entry and key.
    """
    found: list[Measurement] = []
    for path in data_files(extra):
        items = read_yaml(path).get("measurements") or []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise BudgetError(f"{path}: 'measurements' must be a list of mappings, not {items!r}")
        found = [_measurement(Entry(f"{path}: measurements[{i}]", item, _KEYS)) for i, item in enumerate(items)] + found
    return found


def choose(
    shape: PolicyShape | None,
    computer: Computer,
    mode: str,
    measurements: Iterable[Measurement],
    *,
    unit: str,
    given: float | None = None,
) -> Efficiency:
    """Return the efficiency of a prediction, in this order: given, published for the same three things, the class's.

    A published total says how far one engine got from the roofline of its own configuration; that share is used for
    other configurations of the same policy, device and number format.
    """
    if given is not None:
        return Efficiency(given, "given on the command line")
    for found in measurements:
        if shape and (found.policy, found.device, _width(found.precision)) == (shape.name, computer.name, _width(mode)):
            stages = stages_of(shape.changed(**found.configuration))
            ideal = evaluate(shape.name, stages, computer, precision(mode), unit=unit, efficiency=Efficiency(1.0, ""))
            share = ideal.roofline_ms / found.total_ms
            return Efficiency(share, f"published: {found.total_ms:g} ms, {found.source}")
    return computer.efficiency


def _width(mode: str) -> str:
    """bf16 and fp16 cost the same on every computer of the table."""
    return "fp16" if mode == "bf16" else mode


def _measurement(entry: Entry) -> Measurement:
    configuration = Entry(f"{entry.where}.configuration", entry.mapping("configuration"), _COUNTS)
    return Measurement(
        policy=entry.text("policy"),
        device=entry.text("device"),
        precision=precision(entry.text("precision")).name,
        configuration={key: configuration.count(key) for key in configuration.content},
        total_ms=entry.number("total_ms", above=True),
        source=entry.text("source"),
    )
