"""Reads the inputs and outputs of an ONNX file, and holds them to policy.yaml."""

from collections.abc import Callable
from pathlib import Path

from vla_runtime.engines.base import TensorSpec
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.contract import check_shapes
from vla_runtime.policy.errors import BundleError


def check_graphs(policy: PolicyModel, file: Callable[[str], Path]) -> None:
    """Refuse a bundle whose ONNX files contradict policy.yaml or reach outside the bundle for their weights.

    ``file``: gives the path of a file of the bundle by its name, and refuses those that are not listed.
    """
    for stage, model in policy.stages.items():
        path = file(model.file)
        inputs, outputs, external = read_graph(path)
        for name in external:
            file(name)
        shapes = {name: list(spec.shape) for name, spec in {**inputs, **outputs}.items()}
        check_shapes(policy, stage, shapes, str(path))
        for role, found, declared in (("input", inputs, model.inputs), ("output", outputs, model.outputs)):
            _compare(f"{path}: stage '{stage}'", role, found, declared)


def read_graph(path: Path) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec], set[str]]:
    """Return (inputs, outputs, names of external data files) of an ONNX file; weights are not loaded.

    Raises BundleError when it is not an ONNX file, or has an axis without a fixed length.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError, ValueError) as error:
        raise BundleError(f"{path}: not readable as ONNX: {error}") from None
    if not model.graph.output:
        raise BundleError(f"{path}: not an ONNX model (its graph has no outputs)")
    weights = {tensor.name for tensor in model.graph.initializer}
    external = {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    inputs = {value.name: _spec(value, path) for value in model.graph.input if value.name not in weights}
    return inputs, {value.name: _spec(value, path) for value in model.graph.output}, external


def _spec(value, path: Path) -> TensorSpec:
    import onnx

    tensor = value.type.tensor_type
    shape = []
    for axis, dim in enumerate(tensor.shape.dim):
        if not dim.HasField("dim_value"):
            label = dim.dim_param or "?"
            raise BundleError(
                f"{path}: '{value.name}' has no fixed length along axis {axis} ('{label}'); export fixed shapes"
            )
        shape.append(dim.dim_value)
    return TensorSpec(tuple(shape), str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))


def _compare(where: str, role: str, found: dict[str, TensorSpec], declared) -> None:
    if set(found) != set(declared):
        raise BundleError(f"{where}: the file's {role}s are {sorted(found)}, policy.yaml says {sorted(declared)}")
    for name, spec in found.items():
        wanted = TensorSpec(tuple(declared[name].shape), declared[name].dtype)
        if spec != wanted:
            raise BundleError(f"{where}: {role} '{name}' is {spec} in the file, {wanted} in policy.yaml")
