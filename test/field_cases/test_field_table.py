"""The table of field cases names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "field-cases.md").read_text("utf-8"))))


def test_every_row_names_a_test():
    rows = [
        line for line in (ROOT / "docs" / "field-cases.md").read_text("utf-8").splitlines() if line.startswith("| ")
    ]
    assert len(rows) > 20
    assert all("::" in row or "bench" in row for row in rows[1:])


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_exists(file, name):
    assert f"def {name}(" in (ROOT / "test" / file).read_text(encoding="utf-8")
