"""`vla eval`: the figures it writes, and what it says to wrong arguments."""

import json

import pytest

from vla_runtime.cli import main
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return str(write_tiny_bundle(tmp_path_factory.mktemp("tiny")))


def test_writes_figures_and_episodes(bundle, tmp_path, capsys):
    out = tmp_path / "eval.json"
    common = ["eval", "--bundle", bundle, "--allow-unproven", "--episodes", "1", "--time-limit", "1"]
    assert main([*common, "--seed", "7", "--k", "8", "--delay", "2", "--blend", "cut", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert (figures["episodes"], figures["executor"]) == (1, {"k": 8, "blend": "cut"})
    assert figures["runs"][0]["seed"] == 1_000_007
    assert figures["success_interval"][0] <= figures["success_rate"] <= figures["success_interval"][1]
    shown = capsys.readouterr().out
    assert "success            0 of 1" in shown
    assert "limit violations   0" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--delay", "soon"], "--delay is 'soon'; give control periods"),
        (["--delay", "-1"], "--delay is '-1'"),
        (["--time-limit", "20"], "--time-limit is 20; it must be 0.1 to 8 s"),
        (["--episodes", "0"], "--episodes is 0"),
        (["--k", "0"], "--k: k = 0"),
        (["--bundle", "nowhere"], "there is no bundle at 'nowhere'"),
    ],
)
def test_wrong_arguments_are_named(bundle, arguments, says, capsys):
    status = main(["eval", "--bundle", bundle, "--allow-unproven", *arguments])
    assert status == (1 if arguments[0] == "--bundle" else 2)
    assert says in capsys.readouterr().err
