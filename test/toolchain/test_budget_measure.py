"""The computer at hand: rates from clocks that are given, and operators that are timed one by one."""

import itertools

import onnx
import pytest

from vla_runtime.engines.int4.library import find_library
from vla_runtime.toolchain.against.llama_layer import make_layers
from vla_runtime.toolchain.against.onnx_decode import decode_model
from vla_runtime.toolchain.budget import BudgetError, Subject, parse_precision
from vla_runtime.toolchain.budget.bundles import measured_stages, read_bundle
from vla_runtime.toolchain.budget.engine_rates import measure_stages
from vla_runtime.toolchain.budget.flags import budget_flags
from vla_runtime.toolchain.budget.hardware import Efficiency
from vla_runtime.toolchain.budget.measure import MeasuredComputer, copy_bandwidth, gemm_rate, measure_this
from vla_runtime.toolchain.budget.operators import Operator, gemm
from vla_runtime.toolchain.budget.precision import precision
from vla_runtime.toolchain.budget.roofline import evaluate
from vla_runtime.toolchain.budget.stages import Stage
from vla_runtime.toolchain.budget.timing import Timing, Timings, timed
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

FP32 = precision("fp32")


def computer(**changes):
    values = {"name": "this", "title": "a CPU", "bandwidth_bytes_s": 1e10, "gemm_flop_s": ((1, 1e9), (100, 1e11)),
              "threads": 1, "memory_gb": 8.0, "cache_mb": 1.0, "efficiency": Efficiency(1.0, "measured")}  # fmt: skip
    return MeasuredComputer(**{**values, **changes})


def ticking(step_s: float):
    counter = itertools.count()
    return lambda: next(counter) * step_s


def test_rates_follow_from_the_clock_that_is_given():
    assert copy_bandwidth(ticking(0.5), size=8000) == pytest.approx(2 * 8000 / 0.5)
    assert gemm_rate(2, clock=ticking(0.25)) == pytest.approx(2 * 1024 * 1024 * 2 / 0.25)


def test_measure_this_reports_a_busy_machine():
    quiet = measure_this(clock=ticking(1.0), cpu_clock=ticking(1e9))
    busy = measure_this(clock=ticking(1.0), cpu_clock=ticking(1e-9))
    assert quiet.busy_share == 0 and busy.busy_share == pytest.approx(1.0)
    budget = evaluate("x", [Stage("vision", (gemm("g", 1, 8, 8, 8),))], busy, FP32)
    assert [flag.code for flag in budget_flags(budget, busy, 0)] == ["busy_machine"]
    assert quiet.memory_gb > 0 and "cores" in quiet.title
    with pytest.raises(BudgetError, match="threads must be at least 1, not 0"):
        measure_this(0)


@pytest.mark.parametrize("columns, rate", [(1, 1e9), (10, 1e10), (100, 1e11), (5000, 1e11)])
def test_the_rate_of_a_product_is_interpolated_by_its_columns(columns, rate):
    assert computer().rate(gemm("g", 1, 64, columns, 64)) == pytest.approx(rate)


def test_a_timed_operator_costs_what_it_cost():
    this = computer()
    product = Operator("MatMul", "gemm", 1000, gemm("g", 1, 10, 10, 10).tensors, measured_s=0.004)
    other = Operator("Softmax", "other", 0, product.tensors, measured_s=0.001)
    call = Operator("engine call", "other", 0, (), measured_s=0.0005)
    budget = evaluate("x", [Stage("action", (product, other, call), passes=3)], this, FP32)
    assert budget.total_ms == pytest.approx(3 * 5.5)
    assert budget.stage("action").overhead_ms == pytest.approx(1.5)
    assert [cost.bound for cost in budget.stage("action").operators] == ["compute", "memory", "overhead"]
    assert budget.floor_ms < budget.total_ms


def test_only_what_the_engine_runs_is_predicted():
    for mode in ("fp16", "int8", "w8a8", "fp8"):
        with pytest.raises(BudgetError, match="measured in fp32 alone"):
            evaluate("x", [Stage("vision", (gemm("g", 1, 1, 1, 1),))], computer(), precision(mode))


def test_runs_are_timed_in_turn_and_averaged():
    order = []
    runs = {name: (lambda name=name: order.append(name)) for name in "ab"}
    found = timed(runs, Timing(seconds=0.0, least=3, clock=ticking(1.0), cpu_clock=None), warm="b")
    assert order == ["a", "b"] + ["a", "a", "b", "b"] * 3, "a round to begin with, then each cold and warm"
    assert found.seconds["a"] == found.seconds["b"] > 0 and found.stretch(1.0) == 1


def test_cold_and_warm_runs_count_by_half_unless_a_call_is_always_warm():
    cpu = iter([0.0, 5.0, 0.0, 1.0] * 10)  # cold 5 s, warm 1 s
    runs = {"operator": lambda: None, "call": lambda: None}
    timing = Timing(seconds=0.0, least=2, clock=ticking(1.0), cpu_clock=lambda: next(cpu))
    assert timed(runs, timing, warm=("call",)).seconds == {"operator": 3.0, "call": 1.0}


def test_cpu_time_counts_and_is_stretched_by_what_others_took():
    runs = {"short": lambda: None, "long": lambda: None}
    cpu = iter([0.0, 1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 3.0] * 10)  # short takes 1 s of CPU, long 3 s
    found = timed(runs, Timing(seconds=0.0, least=2, clock=ticking(4.0), cpu_clock=lambda: next(cpu)))
    assert found.seconds == {"short": 1.0, "long": 3.0}
    assert found.stretch(100.0) == pytest.approx(2.0), "16 s on the wall for 8 s of CPU in each round"


def test_what_is_long_is_stretched_more_than_what_is_short():
    """One call in five loses a long time slice: short things are mostly spared, long ones never."""
    trace = tuple((1.0, 11.0 if index % 5 == 0 else 1.0) for index in range(100))
    timings = Timings({}, trace)
    assert timings.stretch(1.0) == pytest.approx(1.0)
    assert timings.stretch(5.0) == pytest.approx(3.0)
    assert Timings({}, ((1.0, 0.5),) * 9).stretch(1.0) == 1.0, "never shorter than its CPU time"


def test_operators_of_the_engines_own_graph(tmp_path):
    root = write_tiny_bundle(tmp_path / "tiny", width=64)
    quick = Timing(seconds=0.0, least=1)
    paths = [root / f"{name}.onnx" for name in ("vision", "backbone", "action")]
    groups = [stage.operators for stage in measure_stages(paths, 1, quick)]
    for group in groups:
        assert all(operator.measured_s is not None and operator.measured_s >= 0 for operator in group)
        assert group[-1].name == "engine call"
        relabel = [operator for operator in group if operator.name in ("Reshape", "Unsqueeze")]
        assert all(not operator.tensors and not operator.macs for operator in relabel)
    vision = [operator for operator in groups[0] if operator.macs]
    assert sum(operator.macs * operator.repeat for operator in vision) == 2 * 16 * 64 * 3 * 64
    mix = [operator for operator in groups[1] if operator.macs == 49 * 64 * 64]
    assert len(mix) == 1 and mix[0].elements("weight") == 64 * 64


def test_a_token_through_int4_weights_is_measured_with_the_engines_product(tmp_path):
    path = tmp_path / "decode.onnx"
    layers = make_layers(128, 256, 1)
    onnx.save(decode_model(layers), str(path))
    [stage] = measure_stages([path], 1, Timing(seconds=0.0, least=1))
    products = [operator for operator in stage.operators if operator.macs]
    assert {operator.name for operator in products} == {"Int4Product" if find_library() else "MatMulNBits"}
    assert sum(operator.macs * operator.repeat for operator in products) == 2 * layers[0].weight_bytes
    assert all(operator.measured_s > 0 for operator in products)


def test_a_measured_bundle_costs_the_sum_of_its_operators(tmp_path):
    bundle = read_bundle(write_tiny_bundle(tmp_path / "tiny"))
    stages, whole_ms = measured_stages(bundle, 1)
    assert whole_ms is None
    assert [stage.name for stage in stages] == ["vision", "prefill", "action"]
    this = computer()
    budget = Subject(bundle=bundle, graphs=tuple(stages)).budget(this, parse_precision("fp32"))
    for stage, found in zip(stages, budget.stages):
        expected = sum(operator.measured_s * operator.repeat for operator in stage.operators) * stage.passes
        assert found.ms == pytest.approx(expected * 1e3)


def test_stages_are_timed_as_a_whole_only_when_asked(tmp_path):
    bundle = read_bundle(write_tiny_bundle(tmp_path / "tiny"))
    _, whole_ms = measured_stages(bundle, 1, whole=True)
    assert list(whole_ms) == ["vision", "prefill", "action"] and all(value > 0 for value in whole_ms.values())
    assert whole_ms["action"] > whole_ms["vision"], "eight passes against one"


def test_a_stage_that_is_no_onnx_file(tmp_path):
    root = write_tiny_bundle(tmp_path / "tiny")
    (root / "vision.onnx").write_bytes(b"nonsense")
    with pytest.raises(BudgetError, match="vision.onnx"):
        measured_stages(read_bundle(root), 1)
