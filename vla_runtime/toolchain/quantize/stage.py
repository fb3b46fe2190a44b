"""Quantises one ONNX graph, by rounding to nearest or by AWQ."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from vla_runtime.errors import UserError
from vla_runtime.toolchain.quantize.activations import gather_moments
from vla_runtime.toolchain.quantize.awq import output_error, scaled_moments, search_reach, search_scale
from vla_runtime.toolchain.quantize.compensate import compensated
from vla_runtime.toolchain.quantize.int4 import dequantise, quantise, rounded
from vla_runtime.toolchain.quantize.linears import Linear, Skipped, find_linears
from vla_runtime.toolchain.quantize.rewrite import GroupPlan, Quantised, at_opset, rewrite

METHODS = ("awq", "rtn")
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LayerReport:
    """Relative output error (squared) of one layer on the calibration tokens, by rounding and as chosen."""

    output: str
    shape: tuple[int, int]
    block: int
    rtn_error: float
    error: float


@dataclass(frozen=True)
class StageReport:
    """What was done to a graph."""

    method: str
    layers: list[LayerReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def quantise_graph(
    model: onnx.ModelProto,
    inputs: Iterable[dict[str, np.ndarray]],
    *,
    method: str = "awq",
    block: int = 128,
    clip: bool = True,
    feedback: bool = True,
    exclude: Sequence[str] = (),
    threads: int = 1,
    progress: Progress = lambda done, total: None,
) -> tuple[onnx.ModelProto, StageReport]:
    """Return (the graph with INT4 linears, what was done).

    ``inputs``: calibration inputs of the graph, one dict for each observation. ``method``: 'awq', or 'rtn' as the
    baseline (it needs the inputs only to report errors). ``clip``, ``feedback``: for 'awq', also search each group's
    range, and let later rows make up for the rounding of earlier ones. Raises UserError when no layer can be quantised.
    """
    if method not in METHODS:
        raise UserError(f"quantisation method '{method}' is unknown; choose one of {list(METHODS)}")
    model = at_opset(model)
    groups, skipped = find_linears(model, block, exclude)
    if not groups:
        raise UserError(f"no layer can become INT4; left out: {[f'{each.output}: {each.why}' for each in skipped]}")
    moments = gather_moments(model, list(groups), inputs, threads)
    plans, layers = [], []
    for done, (source, linears) in enumerate(groups.items()):
        second = moments[source].second
        scale = None
        if method == "awq":
            weights, blocks = [linear.weight for linear in linears], [linear.block for linear in linears]
            scale = search_scale(weights, blocks, moments[source]).scale
        refine = method == "awq"
        members = [_member(linear, scale, second, clip and refine, feedback and refine) for linear in linears]
        plans.append(GroupPlan(source, scale, members))
        layers += [_report(member, scale, second) for member in members]
        progress(done + 1, len(groups))
    return rewrite(model, plans), StageReport(method, layers, skipped)


def _member(linear: Linear, scale: np.ndarray | None, second: np.ndarray, clip: bool, feedback: bool) -> Quantised:
    """Choose range and rounding of one linear; each refinement is kept only where it lowers the output error."""
    weight = linear.weight if scale is None else linear.weight * scale[:, None]
    seen = second if scale is None else scaled_moments(second, scale)
    candidates = [quantise(weight, linear.block)]
    if clip:
        candidates.append(quantise(weight, linear.block, search_reach(weight, linear.block, seen)))
    if feedback:
        candidates += [(compensated(weight, scales, seen), scales) for _, scales in candidates]
    q, scales = min(candidates, key=lambda each: output_error(weight, dequantise(*each), seen))
    return Quantised(linear, q, scales)


def _report(member: Quantised, scale: np.ndarray | None, second: np.ndarray) -> LayerReport:
    linear = member.linear
    back = dequantise(member.q, member.scales)
    back = back if scale is None else back / scale[:, None]
    plain = output_error(linear.weight, rounded(linear.weight, linear.block), second)
    chosen = output_error(linear.weight, back, second)
    return LayerReport(linear.output, linear.weight.shape, linear.block, plain, chosen)
