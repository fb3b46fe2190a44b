"""The command line: help that reads well, and errors without a traceback."""

import importlib
import subprocess
import sys

import pytest

from vla_runtime import cli
from vla_runtime.errors import UserError


@pytest.mark.parametrize("word", cli.COMMANDS)
def test_every_command_has_help(word, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([*word.split(), "--help"])
    assert exit_.value.code == 0
    assert f"vla {word}" in capsys.readouterr().out


def test_top_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in cli.COMMANDS)
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("argv", [[], ["dance"], ["bench"], ["bench", "dance"], ["budget", "--no-such-option"]])
def test_wrong_usage_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(argv)
    assert exit_.value.code == 2
    assert "usage: vla" in capsys.readouterr().err


def test_user_error_is_exit_code_1_without_traceback(monkeypatch, capsys):
    module = importlib.import_module(cli.COMMANDS["budget"][0])

    def fail(_args):
        raise UserError("device 'toaster' is not known; choose one of: a100")

    monkeypatch.setattr(module, "run", fail)
    assert cli.main(["budget"]) == 1
    assert capsys.readouterr().err == "vla budget: device 'toaster' is not known; choose one of: a100\n"


def test_a_report_goes_into_a_folder_that_is_made_before_the_work(monkeypatch, tmp_path):
    module = importlib.import_module(cli.COMMANDS["bench policy"][0])
    monkeypatch.setattr(module, "run", lambda args: int(not (tmp_path / "new" / "folder").is_dir()))
    assert cli.main(["bench", "policy", "--json", str(tmp_path / "new" / "folder" / "x.json")]) == 0


def test_a_file_that_cannot_be_written_is_named_without_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    assert cli.main(["bench", "policy", "--json", str(tmp_path / "file" / "x.json")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_help_is_quick_because_nothing_is_imported():
    script = "import sys, vla_runtime.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    script += "assert not {'numpy', 'rclpy', 'torch'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
