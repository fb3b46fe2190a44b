"""The pages are true to the code: links, commands, parameters, topics, reasons."""

import ast
import json
import re
from pathlib import Path

import pytest

from vla_runtime import cli
from vla_runtime.control.acceptance import REASONS
from vla_runtime.control.watchdog_states import State
from vla_runtime.toolchain.parameter_docs import NODES

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md")) + [ROOT / "README.md"]
FIELD_PAGES = [ROOT / "docs" / f"{name}.md" for name in ("first-robot", "tuning", "operations", "troubleshooting")]
PARAMETERS = {p.name for tables in NODES.values() for table in tables for p in table.parameters}


def ids(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("page", FIELD_PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_exist(page):
    words = re.findall(r"(?:^|`|\s)vla ([a-z]+)(?: ([a-z]+))?", page.read_text(), flags=re.M)
    known = set(cli.COMMANDS)
    for first, second in words:
        if first in {word.split()[0] for word in known}:
            continue
        assert f"{first} {second}" in known, f"{page.name}: vla {first} {second}"


@pytest.mark.parametrize("page", FIELD_PAGES, ids=ids)
def test_parameters_exist(page):
    """Words in backticks that look like a parameter of ours are one."""
    text = page.read_text()
    for name in re.findall(
        r"`(\w+_(?:s|rad|poses|plans|ticks|window_s|release|priority|mode|unproven|transport))`", text
    ):
        assert name in PARAMETERS | {"image_transport"}, f"{page.name}: {name}"
    for name in re.findall(r"ros2 param set /\w+ (\w+)", text):
        assert name in PARAMETERS, f"{page.name}: {name}"


def test_every_state_is_explained():
    rows = re.findall(r"^\| ([A-Z]+) \|", (ROOT / "docs/operations.md").read_text(), flags=re.M)
    assert rows == [str(state) for state in State]


def test_reasons_of_refusal_are_those_of_the_code():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    table = text[text.index("| reason | meaning") :].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named
    assert named <= set(REASONS)


def test_launch_arguments_exist():
    declared = set(re.findall(r"argument\(\s*\"(\w+)\"", (ROOT / "launch/robot.launch.py").read_text()))
    for page in FIELD_PAGES:
        for name in re.findall(r"(\w+):=", page.read_text()):
            assert name in declared | {"bag"}, f"{page.name}: {name}:="


def test_the_changelog_has_this_version():
    version = re.search(r"<version>([\d.]+)</version>", (ROOT / "package.xml").read_text())[1]
    assert f"\n{version}\n-----" in (ROOT / "CHANGELOG.rst").read_text()


def test_the_dependencies_page_has_the_extras_of_setup_py():
    tree = ast.parse((ROOT / "setup.py").read_text())
    assigned = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    extras = ast.literal_eval(assigned["EXTRAS"])
    rows = re.findall(r"^\| `\[(\w+)\]` \| ([^|]+) \|", (ROOT / "docs/dependencies.md").read_text(), flags=re.M)
    listed = {extra: {re.match(r"[a-z-]+", name)[0] for name in re.findall(r"`([^`]+)`", text)} for extra, text in rows}
    declared = {extra: {re.match(r"[a-z-]+", name)[0] for name in names} for extra, names in extras.items()}
    declared["tensorrt"] = {"tensorrt", "cupy"}  # the page leaves out for which CUDA
    assert listed == declared


def test_the_decode_steps_figures_are_the_measured_ones():
    found = json.loads((ROOT / "benchmarks/results/decode-against-llamacpp.json").read_text())
    engines = " ".join((ROOT / "docs/engines.md").read_text().split())
    widths = [width for run in found["runs"].values() for width in run.values()]
    forms = {"AMX": "of the time of ggml's AMX form", "CPU_REPACK": "of its form for processors without"}
    for form, words in forms.items():
        ratios = [width["time_ratio"][form]["p50"] for width in widths]
        assert f"{min(ratios):.2f} to {max(ratios):.2f} {words}" in engines
    earlier = [width["ours"]["share_of_read"]["p50"] for name, run in found["before"]["runs"].items()
               if name.startswith("onnxruntime") for width in run.values()]  # fmt: skip
    assert f"reaches {min(earlier) * 100:.0f} to {max(earlier) * 100:.0f} % of that" in engines
