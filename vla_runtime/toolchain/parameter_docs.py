"""Renders the parameter tables: docs/parameters.md, and the parameter files in config/ with every default.

    python -m vla_runtime.toolchain.parameter_docs --write

The tables in the code are the only source; a test compares what is written here with what is in the repository.
"""

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vla_runtime.control.executor_settings import EXECUTOR_TABLE
from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
from vla_runtime.nodes.tables import CONTROL_NODE, POLICY_NODE

NODES: Mapping[str, tuple[Table, ...]] = {
    "executor": (EXECUTOR_TABLE, CONTROL_NODE),
    "watchdog": (WATCHDOG_TABLE, CONTROL_NODE),
    "policy": (POLICY_NODE,),
}
"""The tables of each node, in the order in which they are shown."""

PURPOSE = {
    "executor": "When to ask the policy, which plans to take, how one plan follows another.",
    "watchdog": "What may reach the arm, how long each part may be silent, and what happens then.",
    "policy": "Which bundle runs, on which engine, and what it may look at.",
}

WIDTH = 120


def document() -> str:
    """Return docs/parameters.md."""
    parts = [
        "# Parameters",
        "",
        "Rendered from the tables in the code (`python -m vla_runtime.toolchain.parameter_docs --write`); do not edit.",
        "",
        "Set them in a file (`params_file:=` of the launch file; config/ has one for each node with every default), or",
        "on the running node: `ros2 param set /executor k 12`. A value that is out of its range, or that does not go",
        "with another, is refused with the reason. *live: no*: the node must be inactive. `ros2 param describe` shows",
        "the same text, and `ros2 param dump /executor` writes a file that loads again.",
        "",
    ]
    for node, tables in NODES.items():
        parts += [f"## {node}", "", PURPOSE[node], "", merged(tables), ""]
    return "\n".join(parts).rstrip() + "\n"


def merged(tables: Sequence[Table]) -> str:
    """Return one Markdown table of several tables."""
    head, *rest = [table.markdown().rstrip("\n").splitlines() for table in tables]
    return "\n".join([*head, *(row for table in rest for row in table[2:])])


def parameter_file(node: str) -> str:
    """Return config/<node>.yaml: every parameter at its default, with its meaning."""
    lines = [
        f"# Parameters of the {node} node, each at its default.",
        f"# {PURPOSE[node]}",
        "# Copy it, change what you need, and give the copy to the launch file: params_file:=/path/to/your.yaml",
        "# A line that is missing keeps its default. See docs/parameters.md and docs/tuning.md.",
        "/**:",
        "  ros__parameters:",
    ]
    for table in NODES[node]:
        for parameter in table.parameters:
            # ROS cannot tell the type of an empty list from a file, so that line stays a comment.
            mark = "# " if parameter.default in ([], ()) else ""
            lines += [*_comment(parameter), f"    {mark}{parameter.name}: {_yaml(parameter.default)}"]
    return "\n".join(lines) + "\n"


def _comment(parameter: Parameter) -> list[str]:
    facts = "; ".join(fact for fact in (parameter.range_text(), "" if parameter.live else "not live") if fact)
    text = parameter.doc[:1].upper() + parameter.doc[1:].rstrip(".") + "." + (f" [{facts}]" if facts else "")
    return textwrap.wrap(text, WIDTH, initial_indent="    # ", subsequent_indent="    # ", break_on_hyphens=False)


def _yaml(value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()


def files() -> dict[str, str]:
    """Return every rendered file by its path in the repository."""
    return {"docs/parameters.md": document(), **{f"config/{node}.yaml": parameter_file(node) for node in NODES}}


def main() -> int:
    """Compare the rendered files with those on disk, or write them."""
    parser = argparse.ArgumentParser(description="Render the parameter tables into docs/ and config/.")
    parser.add_argument("--write", action="store_true", help="write the files; without it they are only compared")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the repository (default: here)")
    args = parser.parse_args()
    stale = [path for path, text in files().items() if not _same(args.root / path, text)]
    for path in stale:
        if args.write:
            (args.root / path).write_text(files()[path])
        print(("written: " if args.write else "out of date: ") + path)
    return 0 if args.write or not stale else 1


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main())
