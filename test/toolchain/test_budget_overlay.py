"""Measured files: every form that is read, and what is said of one that cannot be."""

import json

import pytest

from vla_runtime.toolchain.budget import BudgetError, Efficiency, Loop, find_subject, load_devices, load_policies
from vla_runtime.toolchain.budget.overlay import read_measured, rows
from vla_runtime.toolchain.budget.precision import PRECISIONS
from vla_runtime.toolchain.budget.report import report

DEVICE = load_devices()["agx-orin-64"]
SUBJECT = find_subject("pi0.5", load_policies())
MODES = SUBJECT.precisions("bf16", DEVICE)
BENCH = {
    "stages": {
        "preprocess": {"p50_ms": 1.0},
        "vision": {"p50_ms": 41.0, "p99_ms": 55.0, "bytes": 822140928, "floor_ms": 4.0},
        "backbone": {"p50_ms": 60.0, "p99_ms": 70.0},
        "action": {"p50_ms": 85.0, "p99_ms": 99.0, "steps": 10},
        "total": {"p50_ms": 187.0},
    },
    "machine": {"cpu": "x", "threads": 1},
}


def write(tmp_path, content):
    path = tmp_path / "measured.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_what_bench_policy_writes(tmp_path):
    measured = read_measured(write(tmp_path, BENCH))
    assert measured.stage_ms == {"vision": 41.0, "prefill": 60.0, "action": 85.0}
    assert (measured.steps, measured.threads) == (10, 1)
    assert set(measured.ignored) == {"preprocess", "total"}


def test_bare_numbers_and_small_ones(tmp_path):
    assert read_measured(write(tmp_path, '{"stage_ms": {"vision": 1e-05}}')).stage_ms == {"vision": 1e-05}


def test_what_ros2_topic_echo_prints(tmp_path):
    message = (
        "layout:\n  dim:\n  - label: {}\n    size: 1\n  - label: total\n  data_offset: 0\ndata:\n- {}\n- 9.0\n---\n"
    )
    text = "".join(message.format("vision", value) for value in (3.0, 100.0, 5.0))
    measured = read_measured(write(tmp_path, text))
    assert measured.stage_ms == {"vision": 5.0}, "the median"
    assert measured.ignored == ("total",)


def test_rows_hold_prediction_measurement_and_floor_together(tmp_path):
    budget = SUBJECT.budget(DEVICE, MODES, efficiency=Efficiency(0.5, "test"))
    found = {row.stage: row for row in rows(budget, read_measured(write(tmp_path, BENCH)))}
    vision = found["vision"]
    assert vision.predicted_ms == pytest.approx(2 * 6.94, rel=0.01)
    assert vision.ratio == pytest.approx(41 / vision.predicted_ms)
    assert vision.floor_ratio == pytest.approx(41 / vision.floor_ms)
    assert vision.efficiency == pytest.approx(6.94 / 41, rel=0.01)
    assert not vision.close and found["prefill"].close


@pytest.mark.parametrize("predicted, close", [(74.0, False), (76.0, True), (124.0, True), (126.0, False)])
def test_close_is_within_25_percent_of_the_measurement(tmp_path, predicted, close):
    roofline = SUBJECT.budget(DEVICE, MODES).stage("vision").roofline_ms
    budget = SUBJECT.budget(DEVICE, MODES, efficiency=Efficiency(roofline / predicted, "test"))
    (row,) = rows(budget, read_measured(write(tmp_path, {"stages": {"vision": 100.0}})))
    assert row.close is close


def test_measured_efficiencies_replace_the_assumed_one(tmp_path):
    measured = read_measured(write(tmp_path, BENCH))
    result = report(SUBJECT, DEVICE, MODES, DEVICE.efficiency, measured=measured)
    assert result.total_ms == pytest.approx(41 + 60 + 85)
    assert result.budget.stage("vision").efficiency.value == pytest.approx(6.94 / 41, rel=0.01)
    assert result.budget.stage("vision").efficiency.source.startswith("measured")
    assert {row.stage for row in result.overlay} == {"vision", "prefill", "action"}
    assert result.control.slow_ms == pytest.approx(186)


def test_other_steps_than_measured_are_scaled(tmp_path):
    measured = read_measured(write(tmp_path, BENCH))
    result = report(SUBJECT.with_steps(5), DEVICE, MODES, DEVICE.efficiency, measured=measured, loop=Loop())
    assert result.stage_ms["action"] == pytest.approx(42.5)


def test_a_measurement_below_the_floor_is_flagged(tmp_path):
    measured = read_measured(write(tmp_path, {"stages": {"action": {"p50_ms": 10.0}}}))
    flags = report(SUBJECT, DEVICE, MODES, DEVICE.efficiency, measured=measured).flags
    flag = next(flag for flag in flags if flag.code == "below_floor")
    assert flag.stage == "action" and flag.factor > 3 and "measured 10 ms" in flag.message


@pytest.mark.parametrize(
    "content, said",
    [
        ("{", "must hold the JSON|cannot be read"),
        ("[1]", "must hold the JSON"),
        ("", "must hold the JSON"),
        ({"stages": {}}, "no 'stages' in it"),
        ({"stages": {"lunch": 3}}, "no stage called vision"),
        ({"stages": {"vision": -1}}, "stages.vision must be a time above 0 ms, not -1"),
        ({"stages": {"vision": {"p50_ms": "fast"}}}, "stages.vision.p50_ms must be a time above 0 ms, not 'fast'"),
        ({"stages": {"vision": {"p99_ms": 3}}}, "none of p50_ms"),
        ({"stages": {"action": {"p50_ms": 3, "steps": 0}}}, "steps must be a positive whole number, not 0"),
        ("layout: {dim: []}\ndata: []\n", "no stage called"),
        ("layout: {}\ndata: [1]\n", r"layout.dim\[\].label"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, content, said):
    with pytest.raises(BudgetError, match=said):
        read_measured(write(tmp_path, content))


def test_a_missing_file_and_no_stage_in_common(tmp_path):
    with pytest.raises(BudgetError, match="nowhere.json.*cannot be read"):
        read_measured(tmp_path / "nowhere.json")
    measured = read_measured(write(tmp_path, {"stages": {"decode": 3.0}}))
    with pytest.raises(BudgetError, match="none in common"):
        rows(SUBJECT.budget(DEVICE, MODES), measured)


def test_every_mode_has_bits_for_every_role():
    for mode in PRECISIONS.values():
        for role in ("weight", "head", "kv", "activation"):
            assert 4 <= mode.bits(role, attention=False) <= 32
