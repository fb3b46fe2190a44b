"""Runs a stage on calibration inputs and gathers the moments of the tensors that its linears read."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.awq import InputMoments


def gather_moments(
    model: onnx.ModelProto, names: Sequence[str], inputs: Iterable[dict[str, np.ndarray]], threads: int = 1
) -> dict[str, InputMoments]:
    """Return the moments of each tensor in ``names`` over all tokens of all ``inputs``.

    The model runs unquantised. Only (K, K) sums are kept, so any number of inputs fits in memory.
    Raises UserError when there are no inputs.
    """
    import onnxruntime

    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    present = {value.name for value in probe.graph.output}
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_inputs()]
    second: dict[str, np.ndarray] = {}
    absolute: dict[str, np.ndarray] = {}
    tokens, largest = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    for given in inputs:
        for name, value in zip(names, session.run(list(names), {key: given[key] for key in wanted})):
            rows = value.reshape(-1, value.shape[-1]).astype(np.float32)
            product = (rows.T @ rows).astype(np.float64)
            second[name] = second.get(name, 0.0) + product
            absolute[name] = absolute.get(name, 0.0) + np.abs(rows).sum(axis=0, dtype=np.float64)
            tokens[name] += len(rows)
            largest[name] = max(largest[name], float(np.abs(rows).max()))
    if not second:
        raise UserError("there are no observations to calibrate on")
    return {
        name: InputMoments(
            (second[name] / tokens[name]).astype(np.float32),
            absolute[name] / tokens[name],
            tokens[name],
            largest[name],
        )
        for name in names
    }
