import json

import pytest

from vla_runtime.cli import main
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.toolchain.bench_policy import stage_bytes
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


def test_figures_have_the_promised_form(bundle, tmp_path, capsys):
    target = tmp_path / "bench.json"
    assert main(["bench", "policy", str(bundle), "--rounds", "5", "--warm-up", "1", "--json", str(target)]) == 0
    report = json.loads(target.read_text())
    assert set(report["stages"]) == {"preprocess", "vision", "backbone", "action", "total"}
    for stage in report["stages"].values():
        assert 0 < stage["p50_ms"] <= stage["p95_ms"] <= stage["p99_ms"] <= stage["max_ms"]
        assert stage["bytes"] > 0
        gigabytes_per_s = stage["bytes"] / stage["floor_ms"] / 1e6
        assert gigabytes_per_s == pytest.approx(report["machine"]["read_bandwidth_gb_s"])
    assert report["stages"]["action"]["steps"] == 8 and report["against"] == {}
    assert "backbone" in capsys.readouterr().out


def test_bytes_are_weights_and_inputs_once_per_step(bundle):
    loaded = load_bundle(bundle)
    weights = 4 * (16 * 6 + 6 * 6 + 50 + 2) + 2 * 8
    inputs = 4 * (49 * 16 + 6 + 50 * 6 + 50)
    assert stage_bytes(loaded, "action") == (8 * (weights + inputs), 8)


def test_bad_counts_are_refused(bundle, capsys):
    assert main(["bench", "policy", str(bundle), "--rounds", "0"]) == 2
    assert "--rounds is 0" in capsys.readouterr().err
