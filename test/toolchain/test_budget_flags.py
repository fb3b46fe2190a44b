"""Honesty: claims below the floor, number formats that a computer has not, weights that do not fit."""

import pytest

from vla_runtime.toolchain.budget import (
    BudgetError,
    Efficiency,
    evaluate,
    find_subject,
    load_devices,
    load_policies,
    parse_precision,
)
from vla_runtime.toolchain.budget.flags import below_floor, budget_flags, claim_flags, memory_flag
from vla_runtime.toolchain.budget.operators import prefill
from vla_runtime.toolchain.budget.stages import Stage

DEVICES, POLICIES = load_devices(), load_policies()


def budget(policy, device, mode, efficiency=None, unit="binary"):
    subject = find_subject(policy, POLICIES)
    modes = parse_precision(mode)
    result = subject.budget(DEVICES[device], modes, unit, efficiency and Efficiency(efficiency, "test"))
    return result, subject.weight_bytes(DEVICES[device], modes)


def test_openvla_on_orin_in_60_ms_cannot_be():
    result, _ = budget("openvla-7b", "agx-orin-64", "fp16")
    (flag,) = claim_flags(result, {"action": 60.0}, DEVICES["agx-orin-64"])
    assert (flag.code, flag.severity, flag.stage) == ("below_floor", "error", "action")
    assert flag.factor == pytest.approx(7.4, rel=0.02)
    for part in ("60 ms", "7.5 times", "204.8 GB/s", "fp16 weights", "7 times"):
        assert part in flag.message


def test_a_claim_above_the_floor_is_not_flagged_and_total_is_checked_too():
    result, _ = budget("openvla-7b", "agx-orin-64", "fp16")
    device = DEVICES["agx-orin-64"]
    assert claim_flags(result, {"action": 460.0, "vlm": 70.0, "total": 600.0}, device) == []
    assert [flag.stage for flag in claim_flags(result, {"total": 500.0}, device)] == ["total"]


def test_with_int4_the_same_claim_is_still_too_fast_but_by_less():
    result, _ = budget("openvla-7b", "agx-orin-64", "w4a16")
    (flag,) = claim_flags(result, {"action": 60.0}, DEVICES["agx-orin-64"])
    assert 1.9 < flag.factor < 2.1


def test_a_compute_bound_claim_is_reasoned_with_arithmetic():
    result, _ = budget("pi0", "agx-orin-64", "bf16")
    (flag,) = claim_flags(result, {"prefill": 20.0}, DEVICES["agx-orin-64"])
    assert "TFLOP" in flag.message


@pytest.mark.parametrize("claim", [0.0, -3.0, float("nan"), float("inf")])
def test_a_claim_that_is_no_time_is_quoted(claim):
    with pytest.raises(ValueError, match=repr(claim)):
        below_floor("the claim of", "action", claim, 10.0, "because")


def test_a_claim_about_a_stage_that_is_not_there():
    result, _ = budget("pi0", "thor", "bf16")
    with pytest.raises(BudgetError, match="pi0 has no stage 'decode'; it has vision, prefill, action"):
        claim_flags(result, {"decode": 3.0}, DEVICES["thor"])
    with pytest.raises(BudgetError, match="'lunch' is not known"):
        claim_flags(result, {"lunch": 3.0}, DEVICES["thor"])


@pytest.mark.parametrize("device", ["agx-orin-64", "agx-orin-32", "orin-nx-16", "orin-nx-8", "orin-nano-8", "a100"])
def test_fp8_is_refused_with_the_reason_where_there_is_none(device):
    with pytest.raises(BudgetError, match="does not run fp8: .*Ampere.*no FP8.*w8a8"):
        budget("pi0", device, "fp8")


@pytest.mark.parametrize("device", ["thor", "rtx-4090", "rtx-5090", "h100", "b100"])
def test_fp8_runs_where_there_is_some(device):
    assert budget("pi0", device, "fp8")[0].total_ms < budget("pi0", device, "bf16")[0].total_ms


def test_weights_that_do_not_fit():
    result, size = budget("openvla-7b", "orin-nano-8", "fp16")
    assert size == pytest.approx(14.4e9, rel=0.01), "language weights of prefill and tokens are the same ones"
    flag = memory_flag(result, DEVICES["orin-nano-8"], size)
    assert flag.code == "does_not_fit" and flag.factor == pytest.approx(1.8, rel=0.01)
    result, size = budget("openvla-7b", "orin-nano-8", "w4a16")
    assert memory_flag(result, DEVICES["orin-nano-8"], size) is None
    result, size = budget("openvla-7b", "orin-nx-16", "fp16")
    assert memory_flag(result, DEVICES["orin-nx-16"], size).code == "tight_memory"


def test_the_binary_roofline_says_itself_that_it_is_below_the_floor():
    device = DEVICES["agx-orin-64"]
    codes = {flag.code for flag in budget_flags(budget("openvla-7b", "agx-orin-64", "fp16", 1.0)[0], device, 0)}
    assert "convention" in codes and "below_floor" not in codes
    decimal = budget("openvla-7b", "agx-orin-64", "fp16", 1.0, "decimal")[0]
    assert not {"convention", "below_floor"} & {flag.code for flag in budget_flags(decimal, device, 0)}


def test_an_impossible_efficiency_is_flagged():
    result = budget("pi0", "agx-orin-64", "bf16", 2.0)[0]
    flagged = [flag for flag in budget_flags(result, DEVICES["agx-orin-64"], 0) if flag.code == "below_floor"]
    assert {flag.stage for flag in flagged} == {"vision", "prefill", "action"}


def test_int4_is_said_to_do_nothing_where_it_computes():
    result = budget("pi0", "agx-orin-64", "w4a16")[0]
    said = {flag.stage for flag in budget_flags(result, DEVICES["agx-orin-64"], 0) if flag.code == "int4_no_gain"}
    assert "prefill" in said


def test_a_policy_too_small_for_a_gpu_is_said_to_be_so():
    tiny = POLICIES["smolvla"]
    stages = [Stage("vision", tuple(prefill(tiny.vision[0].block, 1, 4)))]
    result = evaluate("tiny", stages, DEVICES["h100"], parse_precision("fp16"))
    (flag,) = [flag for flag in budget_flags(result, DEVICES["h100"], 0) if flag.code == "launch_overhead"]
    assert flag.severity == "warning" and "vision" in flag.message
    big = budget("pi0", "agx-orin-64", "bf16")[0]
    assert "launch_overhead" not in {flag.code for flag in budget_flags(big, DEVICES["agx-orin-64"], 0)}


@pytest.mark.parametrize("policy", ["pi0", "pi0.5", "openvla-7b", "smolvla", "gr00t-n1.5"])
def test_no_decimal_roofline_is_below_its_floor(policy):
    for device in DEVICES:
        for mode in ("fp16", "w8a8", "w4a16"):
            for stage in budget(policy, device, mode, 1.0, "decimal")[0].stages:
                assert stage.floor_ms <= stage.roofline_ms * (1 + 1e-9), (device, mode, stage.name)
