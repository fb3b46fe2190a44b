"""`vla train-demo` refuses what cannot work, by name, before it spends an hour."""

import argparse

import pytest

from vla_runtime.toolchain.train_demo import command


def parse(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(["--out", "unused", *words])


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setattr(command, "NEEDED", ("numpy", "no_such_package"))
    assert command.run(parse()) == 2
    error = capsys.readouterr().err
    assert "no_such_package" in error and "numpy" not in error and "setup-export" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "0"], "--minutes"),
        (["--minutes", "nan"], "--minutes"),
        (["--episodes", "0"], "--episodes"),
        (["--evaluate", "-1"], "--evaluate"),
        (["--limits", "no/such.yaml"], "no/such.yaml"),
        (["--resume", "no/such.safetensors"], "no/such.safetensors"),
    ],
)
def test_wrong_usage_is_named_with_its_value(monkeypatch, capsys, words, said):
    monkeypatch.setattr(command, "NEEDED", ())
    assert command.run(parse(*words)) == 2
    assert said in capsys.readouterr().err
