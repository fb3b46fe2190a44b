"""The data files: what is in them, how users add to them, and what is said of a malformed one."""

import pytest
import yaml

from vla_runtime.toolchain.budget import BudgetError, find_subject, load_devices, load_policies, parse_precision
from vla_runtime.toolchain.budget.efficiency import choose, load_measurements
from vla_runtime.toolchain.budget.files import ENVIRONMENT
from vla_runtime.toolchain.budget.stages import STAGES, stages_of

DEVICE = {"title": "Mine", "tflops": {"fp16": 10}, "bandwidth_gb_s": 100, "memory_gb": 8, "class": "desktop"}
BLOCK = {"layers": 2, "width": 64, "ff_width": 128, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_inputs": 2}
POLICY = {
    "source": "me", "precision": "fp16", "cameras": 1, "image_tokens": 9, "language_tokens": 3, "horizon": 10,
    "step_s": 0.05, "vision": [{"block": "b", "tokens": 9}], "prefill": [{"block": "b"}],
    "action": {"kind": "flow", "steps": 4, "layers": [{"block": "b", "attention": "shared"}]},
}  # fmt: skip


def write(path, content):
    path.write_text(yaml.safe_dump(content))
    return path


def test_everything_promised_is_there():
    assert {"agx-orin-64", "agx-orin-32", "orin-nx-16", "orin-nx-8", "orin-nano-8", "thor", "rtx-4090", "rtx-5090",
            "a100", "h100", "b100"} <= set(load_devices())  # fmt: skip
    assert {"pi0", "pi0.5", "openvla-7b", "smolvla", "gr00t-n1.5", "alpamayo-r1"} <= set(load_policies())


def test_every_policy_names_its_source_and_has_stages_in_order():
    for policy in load_policies().values():
        assert len(policy.source) > 20
        if policy.published is None:
            names = [stage.name for stage in stages_of(policy)]
            assert names == [name for name in STAGES if name in names]


def test_every_default_efficiency_has_a_source():
    for device in load_devices().values():
        assert 0 < device.efficiency.value <= 1
        assert len(device.efficiency.source) > 20


def test_the_table_of_vla_perf():
    orin = load_devices()["agx-orin-64"]
    assert (orin.tflops["fp16"], orin.tflops["int8"], orin.bandwidth_gb_s, orin.memory_gb) == (67, 138, 204.8, 64)
    thor = load_devices()["thor"]
    assert (thor.tflops["fp16"], thor.tflops["fp8"], thor.tflops["fp4"], thor.bandwidth_gb_s) == (400, 800, 2000, 270)


def test_a_users_file_adds_and_replaces(tmp_path, monkeypatch):
    mine = write(tmp_path / "mine.yaml", {"devices": {"mine": DEVICE, "thor": DEVICE}, "blocks": {"b": BLOCK},
                                          "policies": {"toy": POLICY}})  # fmt: skip
    assert load_devices([mine])["mine"].bandwidth_gb_s == 100
    assert load_devices([mine])["thor"].title == "Mine"
    assert "mine" not in load_devices()
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    assert "mine" in load_devices()
    subject = find_subject("toy", load_policies())
    result = subject.budget(load_devices()["mine"], parse_precision("fp16"))
    assert [stage.name for stage in result.stages] == ["vision", "prefill", "action"]


@pytest.mark.parametrize(
    "section, entry, said",
    [
        ("devices", {**DEVICE, "bandwidth_gb_s": 0}, "devices.x: 'bandwidth_gb_s' must be above 0, not 0"),
        ("devices", {**DEVICE, "bandwith_gb_s": 1}, "unknown key 'bandwith_gb_s'"),
        ("devices", {**DEVICE, "tflops": {"fp16": "fast"}}, "'fp16' must be a number, not 'fast'"),
        ("devices", {**DEVICE, "tflops": {}}, "at least one number format"),
        ("devices", {**DEVICE, "class": "toaster"}, "a 'class' of jetson-orin"),
        ("devices", 7, "devices.x must be a mapping, not 7"),
        ("policies", {**POLICY, "cameras": 1.5}, "'cameras' must be a whole number, not 1.5"),
        ("policies", {**POLICY, "prefill": [{"block": "nope"}]}, "'block' must be one of"),
        ("policies", {**POLICY, "action": {**POLICY["action"], "kind": "magic"}}, "must be one of flow, tokens"),
        ("policies", {**POLICY, "action": {"kind": "flow", "steps": 4}}, "'layers' must name at least one block"),
        ("policies", {key: POLICY[key] for key in POLICY if key != "source"}, "'source' must be a text, not None"),
        ("blocks", {**BLOCK, "layers": 0}, "'layers' must be at least 1, not 0"),
    ],
)
def test_a_malformed_entry_is_named_with_file_key_and_value(tmp_path, section, entry, said):
    path = write(tmp_path / "bad.yaml", {"blocks": {"b": BLOCK}, section: {"x": entry}})
    with pytest.raises(BudgetError) as caught:
        load_devices([path])
        load_policies([path])
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_yaml_mapping(tmp_path):
    (tmp_path / "a.yaml").write_text("[1, 2]")
    with pytest.raises(BudgetError, match="a mapping is expected"):
        load_devices([tmp_path / "a.yaml"])
    (tmp_path / "b.yaml").write_text("{a: ")
    with pytest.raises(BudgetError, match="cannot be read as YAML"):
        load_devices([tmp_path / "b.yaml"])
    with pytest.raises(BudgetError, match="does not exist"):
        load_devices([tmp_path / "c.yaml"])


def test_the_efficiency_is_given_else_published_else_the_class_default():
    orin, policy, measurements = load_devices()["agx-orin-64"], load_policies()["pi0.5"], load_measurements()
    assert choose(policy, orin, "bf16", measurements, unit="binary", given=0.5).value == 0.5
    published = choose(policy, orin, "bf16", measurements, unit="binary")
    assert published.value == pytest.approx(75.2 / 193, rel=0.01)
    assert "FlashRT" in published.source
    assert choose(policy, orin, "fp16", measurements, unit="binary").value == pytest.approx(published.value)
    int8 = choose(policy, orin, "w8a8", measurements, unit="binary")
    assert int8.value == pytest.approx(37.0 / 124, rel=0.04)
    assert choose(load_policies()["pi0"], orin, "bf16", measurements, unit="binary") == orin.efficiency
    thor = choose(policy, load_devices()["thor"], "fp8", measurements, unit="binary")
    assert thor.value == pytest.approx(24.7 / 44.0, rel=0.01)


def test_numbers_of_a_policy_can_be_replaced_within_reason():
    policy = load_policies()["pi0"]
    changed = policy.changed(cameras=2, language_tokens=48, steps=5, horizon=None)
    assert (changed.prefix_tokens, changed.action.steps, changed.horizon) == (560, 5, 50)
    for numbers, said in (({"cameras": 0}, "cameras must be positive, not 0"), ({"language_tokens": -1}, "not -1"),
                          ({"tokens": 7}, "pi0 has no action tokens")):  # fmt: skip
        with pytest.raises(BudgetError, match=said):
            policy.changed(**numbers)
    with pytest.raises(BudgetError, match="published stage profile"):
        load_policies()["alpamayo-r1"].changed(steps=3)


def test_precisions_by_stage():
    modes = parse_precision("fp16, backbone=w4a16")
    assert (modes["vision"].name, modes["prefill"].name, modes["prefill"].weight_bits) == ("fp16", "w4a16", 4.15625)
    for spec, said in (
        ("fp17", "'fp17' is not known"),
        ("prefill=fp16", "must name one mode"),
        ("fp16,nose=fp8", "nose"),
    ):
        with pytest.raises(BudgetError, match=said):
            parse_precision(spec)
