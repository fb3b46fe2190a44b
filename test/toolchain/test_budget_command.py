"""``vla budget`` as people and scripts meet it: JSON by its schema, tables, Markdown, pictures, errors."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest

from vla_runtime.cli import main
from vla_runtime.toolchain.budget.files import DATA
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

SCHEMA = jsonschema.Draft202012Validator(json.loads((DATA / "schema.json").read_text()))


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["budget", *arguments])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, said.err


def as_json(capsys, *arguments: str) -> dict:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    content = json.loads(out)
    SCHEMA.validate(content)
    return content


def test_pi0_on_orin_as_json(capsys):
    content = as_json(capsys, "--policy", "pi0", "--device", "agx-orin-64")
    assert list(content["stages"]) == ["vision", "prefill", "action"]
    for stage in content["stages"].values():
        assert stage["ms"] == pytest.approx(stage["roofline_ms"] / stage["efficiency"])
        assert stage["bound"] in ("compute", "memory")
        assert stage["efficiency_source"]
    assert content["total_ms"] == pytest.approx(sum(stage["ms"] for stage in content["stages"].values()))
    assert isinstance(content["flags"], list)
    assert content["stages"]["prefill"]["bound"] == "compute"
    assert content["stages"]["action"]["bound"] == "memory"


def test_the_published_table_from_the_command_line(capsys):
    content = as_json(capsys, "--policy", "pi0", "--device", "agx-orin-64", "--efficiency", "1")
    assert content["total_ms"] == pytest.approx(93.78, rel=0.01)
    content = as_json(capsys, "--policy", "openvla-7b", "--device", "agx-orin-64", "--precision", "fp16",
                      "--efficiency", "1", "--claim", "action=60")  # fmt: skip
    assert content["stages"]["action"]["ms"] == pytest.approx(416.75, rel=0.01)
    (flag,) = [flag for flag in content["flags"] if flag["code"] == "below_floor"]
    assert flag["severity"] == "error" and flag["factor"] > 7


def test_alpamayo(capsys):
    content = as_json(capsys, "--policy", "alpamayo-r1", "--share", "0.25")
    assert content["total_ms"] == pytest.approx(98.72)
    assert content["profile"]["expected_ms"] == pytest.approx(46.2, abs=0.05)
    assert content["profile"]["worst_ms"] == pytest.approx(98.72)
    assert content["notes"]["trajectory_as_tokens"]["total_ms"] == pytest.approx(311.97)
    assert as_json(capsys, "--policy", "alpamayo-r1", "--reasoning-tokens", "0")["total_ms"] == pytest.approx(28.72)


def test_the_slow_branch_misses_a_deadline_that_the_mean_holds(capsys):
    arguments = ("--policy", "alpamayo-r1", "--share", "0.1", "--deadline-ms", "60")
    content = as_json(capsys, *arguments)
    assert content["control"]["holds_on_mean"] and not content["control"]["holds_on_slow"]
    assert any(flag["code"] == "deadline_missed" for flag in content["flags"])
    assert not as_json(capsys, *arguments[:-1], "120")["flags"]


def test_adaptive_steps_and_reasoning_make_a_slow_branch_of_any_policy(capsys):
    base = as_json(capsys, "--policy", "pi0", "--device", "thor")
    more = as_json(capsys, "--policy", "pi0", "--device", "thor", "--steps-max", "20")
    assert more["control"]["mean_ms"] == pytest.approx(base["total_ms"])
    assert more["control"]["slow_ms"] == pytest.approx(base["total_ms"] + base["stages"]["action"]["ms"])
    thinking = as_json(capsys, "--policy", "pi0", "--device", "thor", "--reasoning-tokens", "8", "--share", "0.5")
    assert thinking["stages"]["decode"]["passes"] == 8
    assert thinking["control"]["mean_ms"] < thinking["control"]["slow_ms"] == pytest.approx(thinking["total_ms"])


def test_side_by_side(capsys):
    content = as_json(capsys, "--policy", "pi0.5", "--compare", "agx-orin-64", "thor", "rtx-4090")
    assert [item["device"] for item in content["budgets"]] == ["agx-orin-64", "thor", "rtx-4090"]
    content = as_json(capsys, "--policy", "pi0", "--device", "thor", "--compare", "smolvla", "alpamayo-r1")
    assert [item["policy"] for item in content["budgets"]] == ["pi0", "smolvla", "alpamayo-r1"]
    assert content["budgets"][2]["device"] == "rtx-6000-pro"


def test_overlay(capsys, tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"stages": {"vision": {"p50_ms": 18.0}, "backbone": {"p50_ms": 90.0},
                                           "action": {"p50_ms": 400.0, "steps": 10}}}))  # fmt: skip
    arguments = ("--policy", "pi0.5", "--device", "agx-orin-64", "--measured", str(path))
    content = as_json(capsys, *arguments)
    overlay = content["overlay"]
    assert overlay["vision"]["within_25_percent"] and not overlay["action"]["within_25_percent"]
    assert overlay["action"]["measured_over_floor"] == pytest.approx(400 / overlay["action"]["floor_ms"])
    assert content["first_stage"] == "action"
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    for word in ("predicted", "measured", "meas/floor", "Attack action first", "more than 25 % off"):
        assert word in out


def test_a_bundle_on_a_data_sheet_and_here(capsys, tmp_path):
    root = str(write_tiny_bundle(tmp_path / "tiny"))
    content = as_json(capsys, "--bundle", root, "--device", "agx-orin-64", "--precision", "fp16")
    assert content["policy"] == "tiny-so101" and content["precision"] == "fp16"
    content = as_json(capsys, "--policy", root)
    assert content["device"] == "this" and content["precision"] == "fp32"
    assert content["stages"]["action"]["passes"] == 8
    assert as_json(capsys, "--bundle", root, "--steps", "2")["stages"]["action"]["passes"] == 2
    content = as_json(capsys, "--bundle", root, "--measured", "now")
    assert set(content["overlay"]) == {"vision", "prefill", "action"}
    assert content["notes"]["measured_file"] == "now"


@pytest.mark.parametrize("arguments", [(), ("--explain",), ("--compare", "thor", "orin-nano-8", "openvla-7b")])
def test_tables_fit_80_columns(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    for policy in ("pi0", "openvla-7b", "smolvla", "gr00t-n1.5"):
        code, out, _ = run(capsys, "--policy", policy, "--device", "agx-orin-64", *arguments)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert "…" not in out, "a cell was cut off"


def test_explain_shows_the_operators(capsys):
    _, out, _ = run(capsys, "--policy", "pi0", "--device", "thor", "--explain")
    for word in ("qkv self*", "up+gate", "logit prefix", "1 x 32768 x 800 x 2048"):
        assert word in out


def test_markdown(capsys):
    _, out, _ = run(
        capsys, "--policy", "pi0", "--device", "agx-orin-64", "--efficiency", "1", "--markdown", "--explain"
    )
    assert "| prefill | 48.74 | compute |" in out
    assert "### vision:" in out
    _, out, _ = run(capsys, "--policy", "pi0", "--compare", "thor", "h100", "--markdown")
    assert "## pi0, bf16" in out and "| thor |" in out


@pytest.mark.parametrize("suffix, magic", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_picture(capsys, tmp_path, suffix, magic):
    path = tmp_path / f"bars.{suffix}"
    code, _, err = run(capsys, "--policy", "pi0", "--compare", "thor", "h100", "--picture", str(path))
    assert code == 0 and str(path) in err
    assert path.read_bytes().startswith(magic)


def test_list(capsys):
    _, out, _ = run(capsys, "--list")
    for word in ("pi0.5", "demo", "agx-orin-64", "this", "w4a16"):
        assert word in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--policy", "pi0", "--device", "agx-orin-64", "--precision", "fp8"), "has no FP8"),
        (("--policy", "pi0", "--device", "thor", "--measured", "/no/file"), "/no/file"),
        (("--policy", "pi0", "--device", "thor", "--data", "/no/data.yaml"), "/no/data.yaml"),
        (("--bundle", "/no/bundle"), "bundle '/no/bundle': no policy.yaml in it"),
        (("--policy", "pi0", "--device", "thor", "--picture", "/no/folder/bars.png"), "/no/folder/bars.png"),
    ],
)
def test_what_files_or_computers_cannot_give_is_told_in_one_line(capsys, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert code == 1
    assert said in err and "Traceback" not in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--policy", "pi9", "--device", "thor"), "policy 'pi9' is not known; choose one of"),
        (("--policy", "pi0", "--device", "toaster"), "device 'toaster' is not known; choose one of"),
        (("--policy", "pi0", "--device", "thor", "--precision", "fp7"), "precision 'fp7' is not known"),
        (("--policy", "pi0", "--device", "thor", "--precision", "fp16,lunch=fp8"), "stage 'lunch' is not known"),
        (("--policy", "pi0", "--device", "thor", "--efficiency", "0"), "--efficiency must be above 0, not 0.0"),
        (("--policy", "pi0", "--device", "thor", "--share", "1.5"), "--share must be within [0, 1], not 1.5"),
        (("--policy", "pi0", "--device", "thor", "--steps", "-2"), "steps must be at least 0, not -2"),
        (("--policy", "pi0", "--device", "thor", "--claim", "action"), "--claim 'action' must be STAGE=MS"),
        (("--policy", "pi0", "--device", "thor", "--claim", "lunch=3"), "stage 'lunch' is not known"),
        (("--policy", "pi0", "--device", "thor", "--control-hz", "0"), "not 0.0"),
        (("--policy", "pi0", "--device", "thor", "--threads", "0"), "--threads is 0"),
        (("--policy", "pi0", "--device", "thor", "--k", "0"), "K must be at least 1 tick, not 0"),
        (("--policy", "pi0", "--device", "thor", "--picture", "bars.gif"), "must end in .png, .svg, .pdf"),
        (("--policy", "pi0", "--device", "thor", "--json", "--markdown"), "choose one"),
        (("--policy", "alpamayo-r1", "--device", "thor"), "published stage profile"),
        (("--policy", "openvla-7b", "--device", "thor", "--steps", "3"), "no action steps"),
        (("--policy", "pi0", "--device", "thor", "--vocabulary", "256"), "pi0 has no action vocabulary"),
        (("--policy", "pi0", "--device", "thor", "--measured", "now"), "pi0 on thor cannot be run here"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(capsys, arguments, said):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith("usage: vla budget") and said in err.splitlines()[-1]


def test_wrong_usage_is_argparses(capsys):
    assert run(capsys, "--bandwidth-unit", "furlong")[0] == 2
    assert run(capsys, "--cameras", "two")[0] == 2


def test_numbers_of_a_bundle_are_fixed_by_its_graphs(capsys, tmp_path):
    root = str(write_tiny_bundle(tmp_path / "tiny"))
    code, _, err = run(capsys, "--bundle", root, "--device", "thor", "--precision", "fp16", "--cameras", "3")
    assert code == 2 and "--cameras cannot be changed" in err


def test_a_budget_from_data_sheets_loads_no_heavy_library():
    script = (
        "import sys\n"
        "from vla_runtime.cli import main\n"
        "assert main(['budget', '--policy', 'pi0', '--device', 'agx-orin-64', '--json']) == 0\n"
        "heavy = {'numpy', 'matplotlib', 'onnx', 'onnxruntime', 'rich', 'torch', 'rclpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
