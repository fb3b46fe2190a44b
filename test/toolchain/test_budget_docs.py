"""docs/budget.md promises code, data and figures: they are run."""

import json
import re
from pathlib import Path

import pytest

from vla_runtime.cli import main
from vla_runtime.toolchain.budget.files import DATA
from vla_runtime.toolchain.budget.flags import Flag

PAGE = (Path(__file__).parents[2] / "docs" / "budget.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_library_example_runs():
    (code,) = blocks("python")
    names: dict = {}
    exec(code, names)  # noqa: S102 (our own page)
    assert names["result"].total_ms > 0
    assert names["budget"].memory_bound_ms_per_token(7e9, 2, 1000) == pytest.approx(14.0)


def test_the_data_example_is_a_valid_file(tmp_path, capsys):
    (example,) = blocks("yaml")
    path = tmp_path / "mine.yaml"
    path.write_text(example)
    assert main(["budget", "--data", str(path), "--policy", "my-policy", "--device", "my-box", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["device"] == "my-box"
    assert "measured by us" in content["stages"]["vision"]["efficiency_source"]


def test_the_example_figures_are_what_the_command_prints(capsys):
    (example,) = blocks("json")
    shown = json.loads(example)
    assert main(["budget", "--policy", "pi0", "--device", "agx-orin-64", "--json"]) == 0
    real = json.loads(capsys.readouterr().out)
    for name, stage in shown["stages"].items():
        for key, value in stage.items():
            assert real["stages"][name][key] == (pytest.approx(value, rel=0.005) if isinstance(value, float) else value)
    assert real["total_ms"] == pytest.approx(shown["total_ms"], rel=0.001)
    assert {key: real["control"][key] for key in shown["control"]} == shown["control"]
    assert real["first_stage"] == shown["first_stage"]


def test_every_flag_of_the_schema_is_explained():
    flag = json.loads((DATA / "schema.json").read_text())["$defs"]["flag"]
    assert set(flag["properties"]) == set(Flag.__dataclass_fields__)
    for code in flag["properties"]["code"]["enum"]:
        assert f"`{code}`" in PAGE
