"""Advice: every named technique acts on the bound that holds, and saves what it says."""

import pytest

from vla_runtime.toolchain.budget import find_subject, load_devices, load_policies, parse_precision
from vla_runtime.toolchain.budget.advice import ACTS_ON, LEAST_SAVING, advise, first_stage

DEVICES, POLICIES = load_devices(), load_policies()
SHAPED = [name for name, policy in POLICIES.items() if policy.published is None]


def advice(policy, device, mode, measured=None):
    subject, modes = find_subject(policy, POLICIES), parse_precision(mode)
    budget = subject.budget(DEVICES[device], modes)
    return advise(subject, DEVICES[device], modes, budget, measured), budget


def techniques(found, stage):
    return {item.technique for item in found if item.stage == stage}


@pytest.mark.parametrize("policy", SHAPED)
@pytest.mark.parametrize("device", ["agx-orin-64", "orin-nano-8", "thor", "rtx-4090", "h100"])
def test_no_technique_that_does_not_act_on_the_bound(policy, device):
    for mode in ("fp16", "w8a8", "w4a16"):
        found, budget = advice(policy, device, mode)
        for item in found:
            stage = budget.stage(item.stage)
            assert stage.bound in ACTS_ON[item.technique]
            assert item.saved_ms >= LEAST_SAVING * stage.ms
        assert [item.saved_ms for item in found] == sorted((item.saved_ms for item in found), reverse=True)


def test_a_compute_bound_prefill_is_not_told_to_take_int4():
    found, budget = advice("pi0", "agx-orin-64", "bf16")
    assert budget.stage("prefill").bound == "compute"
    assert techniques(found, "prefill") == {"w8a8", "fewer_image_tokens", "fewer_cameras"}
    assert "w4a16" in techniques(found, "action")


def test_token_by_token_decode_is_told_int4_and_chunking():
    found, _ = advice("openvla-7b", "agx-orin-64", "fp16")
    assert techniques(found, "action") == {"w4a16", "w8a8", "chunking"}
    best = found[0]
    assert (best.stage, best.technique) == ("action", "chunking")
    assert best.saved_ms == pytest.approx(best.before_ms * 6 / 7, rel=0.01)


def test_no_int8_is_advised_twice_and_no_fp8_on_orin():
    assert not {"w8a8", "fp8"} & {item.technique for item in advice("pi0", "thor", "w8a8")[0]}
    assert "fp8" not in {item.technique for item in advice("pi0", "agx-orin-64", "bf16")[0]}
    assert "fp8" in {item.technique for item in advice("pi0", "thor", "bf16")[0]}


def test_fewer_steps_save_half():
    found, budget = advice("pi0", "agx-orin-64", "bf16")
    item = next(item for item in found if item.technique == "fewer_steps")
    assert item.saved_ms == pytest.approx(budget.stage("action").ms / 2)


def test_measured_times_scale_the_savings_and_show_a_slow_engine():
    measured = {"vision": 41.0, "prefill": 60.0, "action": 300.0}
    found, budget = advice("pi0.5", "agx-orin-64", "bf16", measured)
    engine = next(item for item in found if (item.stage, item.technique) == ("action", "engine"))
    assert engine.saved_ms == pytest.approx(300.0 - budget.stage("action").roofline_ms)
    assert first_stage(found, budget, measured) == "action"
    half = next(item for item in found if item.technique == "fewer_steps")
    assert half.saved_ms == pytest.approx(150.0)


def test_without_advice_the_longest_stage_comes_first():
    _, budget = advice("pi0", "agx-orin-64", "bf16")
    assert first_stage([], budget) == "prefill"
    assert first_stage([], budget, {"vision": 1e6}) == "vision"
