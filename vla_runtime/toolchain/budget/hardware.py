"""Computers as the roofline sees them: peak arithmetic by number format, memory bandwidth, and what they refuse.

Units: TFLOPS are 1e12 floating-point operations a second, two to a multiply-accumulate. GB/s are the data sheet's;
how many bytes a GB is (1e9 as sold, 2^30 as VLA-Perf reads it) is said by the caller, see ``bytes_per_second``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.files import Entry, data_files, merged
from vla_runtime.toolchain.budget.operators import Operator, Tensor
from vla_runtime.toolchain.budget.precision import Precision

GIGABYTE = {"binary": 2**30, "decimal": 10**9}
# What VLA-Perf gives a tensor that never leaves the chip; GB/s
ON_CHIP_GB_S = 18_000.0
_DEVICE_KEYS = {"title", "class", "tflops", "refused", "memory_gb", "bandwidth_gb_s", "on_chip_gb_s", "cache_mb",
                "efficiency", "source", "caution"}  # fmt: skip


@dataclass(frozen=True)
class Efficiency:
    """The share of the roofline that a real engine reaches, and who says so."""

    value: float
    source: str


@dataclass(frozen=True)
class OperatorTime:
    """Seconds of one execution of an operator by what could bound it; the longest of them is its time."""

    compute_s: float
    memory_s: float
    overhead_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Compute and memory overlap, the cost of starting an operator does not."""
        return max(self.compute_s, self.memory_s) + self.overhead_s


class Computer(Protocol):
    """What the model asks of a computer: a data sheet (``Device``) or a measured one (``MeasuredComputer``)."""

    name: str
    title: str
    memory_gb: float
    cache_mb: float
    efficiency: Efficiency

    def refusal(self, precision: Precision) -> str | None:
        """Return why this computer does not run the format, or None."""

    def time(self, operator: Operator, precision: Precision, unit: str) -> OperatorTime:
        """Return the roofline time of one execution."""

    def floor(self, operator: Operator, precision: Precision) -> tuple[float, float]:
        """Return seconds of (arithmetic, unavoidable bytes) that no engine can go below."""


@dataclass(frozen=True)
class Device:
    """A computer from a data sheet. Times are ideal: divide by an efficiency for a prediction."""

    name: str
    title: str
    tflops: Mapping[str, float]
    bandwidth_gb_s: float
    memory_gb: float
    efficiency: Efficiency
    device_class: str = ""
    refused: Mapping[str, str] = None
    on_chip_gb_s: float = ON_CHIP_GB_S
    cache_mb: float = 0.0
    source: str = ""
    caution: str = ""

    def refusal(self, precision: Precision) -> str | None:
        """Return why ``precision`` does not run here (in the data file's words if it has some), or None."""
        for needed in (precision.compute, precision.attention_compute):
            if needed not in self.tflops:
                reason = (self.refused or {}).get(needed, f"no {needed} rate is known for it: {', '.join(self.tflops)}")
                return f"{self.title} does not run {precision.name}: {reason}"
        return None

    def time(self, operator: Operator, precision: Precision, unit: str = "binary") -> OperatorTime:
        """Return VLA-Perf's operator time: arithmetic at peak, bytes at memory (or on-chip) bandwidth.

        An operator without arithmetic takes no time: engines fuse it into its neighbours.

        Raises:
            BudgetError: the device does not run the format.
        """
        peak = self._peak(operator, precision)
        if not operator.macs:
            return OperatorTime(0.0, 0.0)
        gigabyte = GIGABYTE[unit]
        memory = sum(
            tensor_bytes(tensor, operator, precision)
            / ((self.on_chip_gb_s if tensor.on_chip else self.bandwidth_gb_s) * gigabyte)
            for tensor in operator.tensors
        )
        return OperatorTime(operator.macs / (peak / 2), memory)

    def floor(self, operator: Operator, precision: Precision) -> tuple[float, float]:
        """Return seconds of arithmetic at peak, and of weights and cached keys at the data sheet's GB (1e9 bytes)."""
        needed = sum(
            tensor_bytes(tensor, operator, precision)
            for tensor in operator.tensors
            if tensor.role != "activation" and not tensor.on_chip
        )
        return operator.macs / (self._peak(operator, precision) / 2), needed / (self.bandwidth_gb_s * 1e9)

    def _peak(self, operator: Operator, precision: Precision) -> float:
        refusal = self.refusal(precision)
        if refusal:
            raise BudgetError(refusal)
        return self.tflops[precision.attention_compute if operator.attention else precision.compute] * 1e12


def tensor_bytes(tensor: Tensor, operator: Operator, precision: Precision) -> float:
    """Return the bytes of a tensor in a number format."""
    return tensor.elements * precision.bits(tensor.role, operator.attention) / 8


def load_devices(extra: Iterable[Path] = ()) -> dict[str, Device]:
    """Read every device of the data files.

    Raises:
        BudgetError: a file is malformed; the text names the file, the entry and the key.
    """
    files = data_files(extra)
    classes = {}
    for name, (content, path) in merged("classes", files).items():
        entry = Entry(f"{path}: classes.{name}", content, {"efficiency", "source"})
        classes[name] = Efficiency(entry.number("efficiency", above=True), entry.text("source"))
    return {
        name: _device(name, Entry(f"{path}: devices.{name}", content, _DEVICE_KEYS), classes)
        for name, (content, path) in merged("devices", files).items()
    }


def _device(name: str, entry: Entry, classes: Mapping[str, Efficiency]) -> Device:
    device_class = entry.text("class", "")
    if "efficiency" in entry.content:
        efficiency = Efficiency(entry.number("efficiency", above=True), entry.text("source"))
    elif device_class in classes:
        efficiency = classes[device_class]
    else:
        raise BudgetError(f"{entry.where}: give 'efficiency' with its 'source', or a 'class' of {', '.join(classes)}")
    tflops = Entry(f"{entry.where}.tflops", entry.mapping("tflops"), {"fp32", "fp16", "fp8", "int8", "int4", "fp4"})
    if not tflops.content:
        raise BudgetError(f"{entry.where}: 'tflops' must give at least one number format, e.g. {{fp16: 67}}")
    return Device(
        name=name,
        title=entry.text("title", name),
        tflops={key: tflops.number(key, above=True) for key in tflops.content},
        bandwidth_gb_s=entry.number("bandwidth_gb_s", above=True),
        memory_gb=entry.number("memory_gb", above=True),
        efficiency=efficiency,
        device_class=device_class,
        refused=entry.mapping("refused"),
        on_chip_gb_s=entry.number("on_chip_gb_s", ON_CHIP_GB_S, above=True),
        cache_mb=entry.number("cache_mb", 0.0),
        source=entry.text("source", "VLA-Perf (arXiv 2602.18397), hardware table"),
        caution=entry.text("caution", ""),
    )
