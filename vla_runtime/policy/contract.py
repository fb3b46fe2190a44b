"""Holds the stages' tensors to the rest of policy.yaml: horizon, widths, cameras, tokens.

The tensors that the runtime itself fills or reads have fixed names; every other input must be an earlier output.
"""

from collections.abc import Mapping

from vla_runtime.policy.bundle_model import PolicyModel, TensorModel
from vla_runtime.policy.errors import BundleError

# Tensors the runtime fills: everything else that a stage reads must come from a stage before it.
RUNTIME_INPUTS = frozenset({"images", "text_tokens", "text_mask", "state", "x", "time", "cotangent", "token", "step"})


def check_contract(policy: PolicyModel, where: str) -> None:
    """Refuse stages whose declared tensors contradict the bundle's own fields; both numbers are named."""
    known: dict[str, TensorModel] = {}
    for stage, model in policy.stages.items():
        for name, tensor in model.inputs.items():
            if name in known:
                if known[name] != tensor:
                    raise BundleError(
                        f"{where}: stage '{stage}' reads '{name}' as {tensor.dtype}{tensor.shape}, but the stage that "
                        f"makes it says {known[name].dtype}{known[name].shape}"
                    )
            elif name not in RUNTIME_INPUTS:
                raise BundleError(
                    f"{where}: stage '{stage}' reads '{name}', which no earlier stage makes and which is not one of "
                    f"the runtime's own tensors {sorted(RUNTIME_INPUTS)}"
                )
        check_shapes(policy, stage, {n: t.shape for n, t in {**model.inputs, **model.outputs}.items()}, where)
        known.update(model.outputs)


def check_shapes(policy: PolicyModel, stage: str, shapes: Mapping[str, list[int]], where: str) -> None:
    """Compare shapes of the runtime's tensors with policy.yaml; BundleError names the axis and both numbers."""
    for name, axes in _expected(policy).items():
        shape = shapes.get(name)
        if shape is None:
            continue
        if len(shape) != len(axes):
            raise BundleError(
                f"{where}: stage '{stage}': '{name}' has {len(shape)} axes {list(shape)}, expected {len(axes)}"
            )
        for axis, (found, (wanted, field)) in enumerate(zip(shape, axes)):
            if found != wanted:
                raise BundleError(
                    f"{where}: stage '{stage}': '{name}' has {found} along axis {axis}, but policy.yaml says that "
                    f"{field} is {wanted}"
                )


def _expected(policy: PolicyModel) -> dict[str, list[tuple[int, str]]]:
    batch = (1, "the batch size")
    rows = (policy.horizon, "horizon")
    width = (policy.action.width, "the action's width")
    chunk = [batch, rows, width]
    axes = {
        "x": chunk,
        "v": chunk,
        "vjp": chunk,
        "cotangent": chunk,
        "actions": chunk,
        "time": [batch, rows],
        "state": [batch, (policy.state.pad_to or len(policy.state.joints), "the state's width")],
    }
    if policy.cameras:
        camera = policy.cameras[0]
        axes["images"] = [
            (len(policy.cameras), "the number of cameras"),
            (3, "the number of colours"),
            (camera.height, "the cameras' height"),
            (camera.width, "the cameras' width"),
        ]
    if policy.instruction is not None:
        tokens = [batch, (policy.instruction.max_tokens, "instruction.max_tokens")]
        axes |= {"text_tokens": tokens, "text_mask": tokens}
    return axes
