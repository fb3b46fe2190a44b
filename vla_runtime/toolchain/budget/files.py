"""The data files of the model: read, merged with the user's own, and held to the keys that mean something."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from vla_runtime.toolchain.budget.errors import BudgetError

DATA = Path(__file__).parent / "data"
ENVIRONMENT = "VLA_BUDGET_DATA"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def data_files(extra: Iterable[Path] = ()) -> list[Path]:
    """Return the package's YAML files, then those of ``$VLA_BUDGET_DATA``, then ``extra``; later ones win.

    ``extra`` and the parts of the variable (separated like PATH) are files or folders.
    """
    named = [Path(part) for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]
    files = sorted(DATA.rglob("*.yaml"))
    for path in [*named, *extra]:
        if path.is_dir():
            files += sorted(path.rglob("*.yaml"))
        elif path.is_file():
            files.append(path)
        else:
            raise BudgetError(f"data file or folder '{path}' does not exist; it comes from --data or ${ENVIRONMENT}")
    return files


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file; a file that holds something else is an error that names it."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 (a safe loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BudgetError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(content, dict):
        raise BudgetError(
            f"{path}: a mapping is expected (devices:, policies:, blocks:, measurements:), not {content!r}"
        )
    return content


def merged(section: str, files: Iterable[Path]) -> dict[str, tuple[dict[str, Any], Path]]:
    """Collect the entries of a section from many files: name -> (entry, file it came from)."""
    entries: dict[str, tuple[dict[str, Any], Path]] = {}
    for path in files:
        part = read_yaml(path).get(section) or {}
        if not isinstance(part, dict):
            raise BudgetError(f"{path}: '{section}' must map names to entries, not {part!r}")
        for name, entry in part.items():
            if not isinstance(entry, dict):
                raise BudgetError(f"{path}: {section}.{name} must be a mapping, not {entry!r}")
            entries[str(name)] = (entry, path)
    return entries


class Entry:
    """One entry of a data file, read key by key; every complaint names the file, the entry and the key."""

    def __init__(self, where: str, content: Mapping[str, Any], known: set[str]):
        self.where, self.content = where, content
        unknown = sorted(set(content) - known)
        if unknown:
            raise BudgetError(f"{where}: unknown key '{unknown[0]}'; known are {', '.join(sorted(known))}")

    def number(self, key: str, default: float | None = None, *, least: float = 0.0, above: bool = False) -> float:
        """Return a finite number that is at least ``least`` (greater than it if ``above``)."""
        value = self.content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise BudgetError(f"{self.where}: '{key}' must be a number, not {value!r}")
        if value < least or (above and value == least):
            raise BudgetError(
                f"{self.where}: '{key}' must be {'above' if above else 'at least'} {least:g}, not {value!r}"
            )
        return value

    def count(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number that is at least ``least``."""
        value = self.number(key, default, least=least)
        if value != int(value):
            raise BudgetError(f"{self.where}: '{key}' must be a whole number, not {value!r}")
        return int(value)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; a missing one is an error unless there is a default."""
        value = self.content.get(key, default)
        if not isinstance(value, str):
            raise BudgetError(f"{self.where}: '{key}' must be a text, not {value!r}")
        return value

    def choice(self, key: str, choices: Iterable[str], default: str | None = None) -> str:
        """Return one of ``choices``."""
        value = self.text(key, default)
        if value not in set(choices):
            raise BudgetError(f"{self.where}: '{key}' must be one of {', '.join(sorted(choices))}, not '{value}'")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping, empty if it is missing."""
        value = self.content.get(key) or {}
        if not isinstance(value, dict):
            raise BudgetError(f"{self.where}: '{key}' must be a mapping, not {value!r}")
        return value

    def entries(self, key: str, known: set[str]) -> list["Entry"]:
        """Return a list of mappings as entries, empty if it is missing."""
        value = self.content.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise BudgetError(f"{self.where}: '{key}' must be a list of mappings, not {value!r}")
        return [Entry(f"{self.where}.{key}[{index}]", item, known) for index, item in enumerate(value)]
