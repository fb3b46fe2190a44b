"""What a hint tells people to type starts the program that printed it."""

import subprocess
import sys

import pytest

from vla_runtime.toolchain.own_command import own_command


@pytest.fixture
def script(tmp_path):
    """A `vla` such as pip installs, in a folder whose name has a space."""
    made = tmp_path / "an env" / "vla"
    made.parent.mkdir()
    made.write_text(
        f"#!{sys.executable}\nfrom vla_runtime.toolchain.own_command import own_command\nprint(own_command())\n"
    )
    made.chmod(0o755)
    return made


def printed(command: str, folder, path: str) -> str:
    environment = {"PATH": path, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_on_the_path_it_is_its_name(script):
    assert printed("vla", "/", f"{script.parent}:/usr/bin:/bin") == "vla"


@pytest.mark.parametrize("typed", ["'an env/vla'", "./an\\ env/vla"])
def test_beside_the_path_it_is_what_was_typed_and_works_again(script, tmp_path, typed):
    said = printed(typed, tmp_path, "/usr/bin:/bin")
    assert said.endswith("an env/vla'")
    assert printed(said, tmp_path, "/usr/bin:/bin") == said


def test_another_vla_on_the_path_is_not_the_one_that_runs(script, tmp_path):
    other = tmp_path / "vla"
    other.write_text("#!/bin/sh\nfalse\n")
    other.chmod(0o755)
    assert printed(str(script).replace(" ", "\\ "), "/", f"{tmp_path}:/usr/bin:/bin") == f"'{script}'"


def test_without_a_script_it_is_the_module(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/vla_runtime/cli.py", "demo"])
    assert own_command() == f"{sys.executable} -m vla_runtime.cli"
