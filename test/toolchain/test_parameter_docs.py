"""docs/parameters.md and the parameter files say what the tables say."""

import re
from pathlib import Path

import pytest
import yaml

from vla_runtime.toolchain.parameter_docs import NODES, document, files, merged, parameter_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted(files()))
def test_what_is_written_is_what_the_tables_say(path):
    assert (ROOT / path).read_text() == files()[path], (
        "out of date: run `python -m vla_runtime.toolchain.parameter_docs --write`"
    )


@pytest.mark.parametrize("node", sorted(NODES))
def test_every_parameter_is_documented_once(node):
    rows = re.findall(r"^\| `(\w+)` \|", merged(NODES[node]), flags=re.M)
    names = [parameter.name for table in NODES[node] for parameter in table.parameters]
    assert rows == names
    assert len(set(names)) == len(names)
    assert f"## {node}" in document()


@pytest.mark.parametrize("node", sorted(NODES))
def test_a_parameter_file_loads_and_gives_the_defaults(node):
    values = yaml.safe_load(parameter_file(node))["/**"]["ros__parameters"]
    for table in NODES[node]:
        own = {parameter.name for parameter in table.parameters}
        assert table.load({name: value for name, value in values.items() if name in own}) == table.load({})


@pytest.mark.parametrize("node", sorted(NODES))
def test_every_meaning_is_in_the_file(node):
    text = " ".join(parameter_file(node).replace("#", " ").split()).lower()
    for table in NODES[node]:
        for parameter in table.parameters:
            assert " ".join(parameter.doc.rstrip(".").split()).lower() in text
