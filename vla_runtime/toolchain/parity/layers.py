"""Which layer drifts: the outputs of matrix products inside a stage, reference against candidate."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from vla_runtime.policy.bundle import Bundle
from vla_runtime.toolchain.parity.levels import PASS, Level
from vla_runtime.toolchain.parity.metrics import token_cosines
from vla_runtime.toolchain.parity.stages import Call

PRODUCTS = ("MatMul", "Gemm", "Conv")


def compare_layers(reference: Bundle, candidate: Bundle, calls: Sequence[Call]) -> Level:
    """Cosines of each product that both graphs have by name, on the first recorded call of every stage.

    Informs, never judges: the level's verdict is always pass. ``figures['layers']`` lists the worst first.
    """
    rows = []
    seen: set[str] = set()
    for call in calls:
        if call.stage in seen:
            continue
        seen.add(call.stage)
        paths = (reference.stage_path(call.stage), candidate.stage_path(call.stage))
        models = [onnx.load(str(path)) for path in paths]
        names = [name for name in products(models[0]) if name in set(products(models[1]))]
        wanted, found = (_run(model, path, names, call.inputs) for model, path in zip(models, paths))
        for name in names:
            if wanted[name].shape == found[name].shape and wanted[name].dtype.kind == "f":
                cosines = token_cosines(wanted[name], found[name])
                rows.append(
                    {
                        "stage": call.stage,
                        "layer": name,
                        "cosine_mean": float(cosines.mean()),
                        "cosine_worst": float(cosines.min()),
                    }
                )
    rows.sort(key=lambda row: row["cosine_mean"])
    return Level("layers", PASS, [], {"layers": rows})


def products(model: onnx.ModelProto) -> list[str]:
    """Names of the outputs of a graph's matrix products, in order."""
    return [node.output[0] for node in model.graph.node if node.op_type in PRODUCTS]


def _run(
    model: onnx.ModelProto, path: Path, names: Sequence[str], inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    import onnxruntime

    present = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {value.name: inputs[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(list(names), given)))
