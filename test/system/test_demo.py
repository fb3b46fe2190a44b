"""`vla demo`, whole: real nodes over DDS round the simulated arm, from the command line to the figures."""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="the simulated arm needs MuJoCo"),
    pytest.mark.timeout(300),
]

KEYS = {"episodes", "successes", "wrong_object", "command_rate_hz", "period_error_p99_ms", "max_gap_ms",
        "elapsed_executed", "rejected_messages", "limit_violations", "deadline_misses", "inference_ms",
        "time_in_state_s"}  # fmt: skip


def vla(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "vla_runtime.cli", *arguments], capture_output=True, text=True, timeout=280
    )


def test_demo_runs_unattended_and_its_figures_keep_the_promises(tmp_path):
    done = vla(
        "demo", "--episodes", "2", "--seed", "3", "--out", str(tmp_path / "out"), "--json", str(tmp_path / "f.json")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("TELEOP is the demo itself") == 1
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures.keys() >= KEYS
    assert figures["inference_ms"].keys() == {"p50", "p95", "p99", "max"}
    assert figures["episodes"] == 2 and figures["successes"] + figures["wrong_object"] <= 2
    for promise in ("elapsed_executed", "rejected_messages", "limit_violations", "message_faults"):
        assert figures[promise] == 0, promise
    assert figures["command_rate_hz"] == pytest.approx(50, abs=0.5)
    assert figures["time_in_state_s"]["NOMINAL"] > 3.0
    report = (tmp_path / "out" / "report.html").read_text()
    assert report.count("data:image/") >= 4  # camera pictures, joints, latency
    assert all(len(line) <= 100 for line in done.stdout.splitlines() if not line.startswith("  "))


def test_missing_bundle_is_named(tmp_path):
    done = vla("demo", "--episodes", "1", "--quiet", "--bundle", str(tmp_path))
    assert done.returncode == 1
    assert "there is no bundle at" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--episodes", "0"], ["--fault", "flood"], ["--seed", "x"]])
def test_wrong_usage(arguments):
    done = vla("demo", *arguments)
    assert done.returncode == 2
    assert "usage: vla demo" in done.stderr
