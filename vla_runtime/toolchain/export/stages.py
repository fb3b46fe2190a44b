"""Writes torch modules as ONNX stages with fixed shapes, and holds each to PyTorch on ONNX Runtime. Needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.merge import merge_linears

OPSET = 21
TOLERANCE = 2e-4  # relative to the largest value of the output, at least 1
EMBED_BELOW_BYTES = 1 << 30  # a protobuf ends at 2 GiB; larger weights go into a file beside it


@dataclass(frozen=True)
class StageSource:
    """A stage to be written: names of inputs and outputs in the module's order."""

    name: str
    module: nn.Module
    inputs: Sequence[str]
    outputs: Sequence[str]


def write_stages(
    sources: Sequence[StageSource], example: dict[str, Tensor], folder: Path, merge: bool = True
) -> tuple[dict, list[str]]:
    """Write every stage; return (entries of policy.yaml's ``stages``, names of the files written).

    ``example``: one observation's tensors by name; outputs of a stage are added for the stages after it. ``merge``:
    make one product of linears that read the same tensor (not where weights are in a file of their own).
    Raises UserError naming the output that ONNX Runtime computes otherwise than PyTorch.
    """
    known, entries, files = dict(example), {}, []
    for source in sources:
        module = source.module.eval().float()
        given = tuple(known[name] for name in source.inputs)
        with torch.no_grad():
            made = module(*given)
        made = dict(zip(source.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        path = folder / f"{source.name}.onnx"
        size = sum(p.numel() * p.element_size() for p in module.parameters())
        torch.onnx.export(
            module, given, str(path), input_names=list(source.inputs), output_names=list(source.outputs),
            opset_version=OPSET, dynamo=True, external_data=size > EMBED_BELOW_BYTES, optimize=True, verbose=False,
        )  # fmt: skip
        _tidy(path, merge and size <= EMBED_BELOW_BYTES)
        _verify(path, {name: known[name] for name in source.inputs}, made)
        known |= made
        files += [path.name, *(extra.name for extra in folder.glob(f"{path.name}.data"))]
        entries[source.name] = {
            "file": path.name,
            "precision": "fp32",
            "inputs": {name: _tensor(known[name]) for name in source.inputs},
            "outputs": {name: _tensor(made[name]) for name in source.outputs},
        }
    return entries, files


def _tidy(path: Path, merge: bool) -> None:
    """Drop the exporter's notes, which hold paths of the machine that exported; merge linears."""
    model = onnx.load(str(path), load_external_data=False)
    if merge:
        merge_linears(model)
    model.doc_string = ""
    del model.metadata_props[:]
    graph = model.graph
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.doc_string = ""
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
    path.write_bytes(model.SerializeToString(deterministic=True))


def _verify(path: Path, inputs: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    found = session.run(list(expected), {name: value.numpy() for name, value in inputs.items() if name in wanted})
    for (name, want), have in zip(expected.items(), found, strict=True):
        scale = max(1.0, float(want.abs().max()))
        worst = float(np.abs(have.astype(np.float64) - want.numpy().astype(np.float64)).max()) / scale
        if not worst <= TOLERANCE:
            raise UserError(
                f"{path}: '{name}' differs from PyTorch by {worst:.1e} of its range, allowed {TOLERANCE:.0e}"
            )


def _tensor(value: Tensor) -> dict:
    return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
