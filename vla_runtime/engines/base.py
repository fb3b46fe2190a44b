"""The one protocol that every engine keeps, and the checks that all of them share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from vla_runtime.engines.errors import EngineInputError, EngineOutputError


@dataclass(frozen=True)
class TensorSpec:
    """Fixed shape and NumPy dtype name ('float32', 'float16', 'int64', 'bool', ...) of one named tensor."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@runtime_checkable
class Engine(Protocol):
    """Runs one stage. Inputs and outputs are known by name, shape and dtype before the first call."""

    stage: str
    name: str
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the stage once.

        Raises EngineInputError before anything runs when a tensor does not fit, EngineOutputError when an
        output is not finite. The arrays returned belong to the caller until the next call.
        """
        ...


def check_inputs(stage: str, specs: Mapping[str, TensorSpec], inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse tensors that do not fit ``specs``, naming every mismatch at once."""
    faults = [f"input '{name}' is missing (expected {spec})" for name, spec in specs.items() if name not in inputs]
    faults += [f"input '{name}' is not one of {sorted(specs)}" for name in inputs if name not in specs]
    for name, spec in specs.items():
        value = inputs.get(name)
        if value is None:
            continue
        got = TensorSpec(tuple(value.shape), str(value.dtype))
        if got != spec:
            faults.append(f"input '{name}' is {got}, expected {spec}")
    if faults:
        raise EngineInputError(f"stage '{stage}': " + "; ".join(faults))


def check_outputs(stage: str, specs: Mapping[str, TensorSpec], outputs: Mapping[str, np.ndarray]) -> None:
    """Refuse outputs of another shape than declared, or with a value that is not finite, naming the tensor."""
    for name, spec in specs.items():
        value = outputs[name]
        if tuple(value.shape) != spec.shape:
            raise EngineOutputError(
                f"stage '{stage}': output '{name}' has shape {list(value.shape)}, declared {list(spec.shape)}"
            )
        # One sum is a single pass, and is not finite whenever an element is not; only then is the culprit sought.
        if value.dtype.kind == "f" and not np.isfinite(np.sum(value, dtype=np.float64)):
            bad = ~np.isfinite(value)
            if bad.any():
                first = tuple(int(i) for i in np.argwhere(bad)[0])
                raise EngineOutputError(
                    f"stage '{stage}': output '{name}' has {int(bad.sum())} values that are not finite, the first at "
                    f"{list(first)}; check the inputs' range, and for a reduced-precision engine rerun `vla parity`"
                )
