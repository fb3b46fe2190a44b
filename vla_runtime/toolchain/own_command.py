"""How this program can be started once more, for hints that are copied into a second terminal."""

import shlex
import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """Return ``vla`` where that is what runs now, else its path as it was typed, or ``python -m`` where it was none."""
    started = Path(sys.argv[0])
    if started.name != "vla":
        return f"{shlex.quote(sys.executable)} -m vla_runtime.cli"
    found = shutil.which("vla")
    if found is not None and started.exists() and Path(found).samefile(started):
        return "vla"
    return shlex.quote(sys.argv[0])
