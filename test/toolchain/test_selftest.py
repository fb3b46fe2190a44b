"""The self-test says what it found, and a machine that is not fit is not called fit."""

import json
from types import SimpleNamespace

import pytest

from vla_runtime import cli
from vla_runtime.toolchain.selftest import command, machine
from vla_runtime.toolchain.selftest.policy import policy
from vla_runtime.toolchain.selftest.result import FAIL, OK, SKIP, WARN, Result
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


def test_power_save_governor_and_weak_power_mode_are_named(tmp_path, monkeypatch):
    governor = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    assert machine.clocks(tmp_path).level == WARN
    assert "powersave" in machine.clocks(tmp_path).found
    tegra = tmp_path / "etc/nv_tegra_release"
    tegra.parent.mkdir()
    tegra.write_text("# R36 (release), REVISION: 4.3\n")
    monkeypatch.setattr(machine, "_output", lambda *_: "NV Power Mode: MODE_30W\n2\n")
    result = machine.clocks(tmp_path)
    assert result.level == WARN and "30W" in result.found and "nvpmodel -m 0" in result.advice
    monkeypatch.setattr(machine, "_output", lambda *_: "NV Power Mode: MAXN\n0\n")
    assert machine.clocks(tmp_path).level == OK


def test_no_gpu_is_said_and_a_gpu_without_tensorrt_fails(tmp_path, monkeypatch):
    assert machine.gpu(tmp_path).level == SKIP
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda _name: None)
    assert machine.gpu(tmp_path).level == FAIL


def test_policy_checks_on_a_good_bundle_and_on_a_changed_one(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "tiny")
    results = policy(bundle, "auto")
    assert [result.level for result in results] == [OK, OK, OK]
    # 50 waypoints of 20 ms: 49 ticks from the first to the last, as the executor counts.
    latency = results[-1]
    assert latency.figures["horizon_ticks"] == 49
    assert latency.found.endswith(f"to {49 - latency.figures['delay_ticks']}")
    stage = bundle / "vision.onnx"
    stage.write_bytes(stage.read_bytes()[:-1] + b"\0")
    results = policy(bundle, "auto")
    assert [result.level for result in results] == [FAIL]
    assert "vision.onnx" in results[0].found


def test_tensorrt_without_a_device_says_so(tmp_path):
    results = policy(write_tiny_bundle(tmp_path / "tiny"), "tensorrt")
    assert results[0].level == FAIL and "tensorrt" in results[0].found.lower()


@pytest.mark.parametrize(("level", "verdict"), [(OK, True), (WARN, True), (SKIP, True), (FAIL, False)])
def test_only_a_failure_makes_it_unfit(level, verdict):
    assert command.fit([Result("a", OK, ""), Result("b", level, "")]) is verdict


def test_missing_bundle_is_a_users_mistake(tmp_path, capsys):
    assert cli.main(["selftest", "--bundle", str(tmp_path / "none")]) == 1
    assert "there is no bundle at" in capsys.readouterr().err


@pytest.mark.system
def test_whole_page(tmp_path, capsys):
    bundle = write_tiny_bundle(tmp_path / "tiny")
    code = cli.main(["selftest", "--bundle", str(bundle), "--json", str(tmp_path / "out.json")])
    report = json.loads((tmp_path / "out.json").read_text())
    assert code == (0 if report["fit"] else 1)
    levels = {check["check"]: check["level"] for check in report["checks"]}
    assert levels["versions"] == levels["engine"] == levels["parity"] == OK
    assert levels["DDS"] in (OK, WARN)  # an answer came; large frames may be lost with the default transports
    assert all(len(line) <= 100 for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("p99_ms", "refusal", "level", "advice"),
    [
        (0.1, "", OK, ""),
        (3.0, "", WARN, "free a core; the priority is granted already"),
        (3.0, "no SCHED_FIFO 50", WARN, "allow rtprio, or free a core"),
        (30.0, "", FAIL, "too busy or too slow for 50 Hz: free a core; the priority is granted already"),
    ],
)
def test_a_priority_that_is_granted_is_not_asked_for(p99_ms, refusal, level, advice):
    figures = SimpleNamespace(period_error_p99_ms=p99_ms, max_gap_ms=20.0)
    result = machine.judged_jitter(figures, refusal)
    assert (result.level, result.advice) == (level, advice)
