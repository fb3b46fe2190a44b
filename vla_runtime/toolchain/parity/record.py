"""Writes parity.json and parity_report.md into a bundle."""

import json
from pathlib import Path
from typing import Any

from vla_runtime.policy.bundle import PARITY_FILE, Bundle
from vla_runtime.policy.errors import BundleError
from vla_runtime.policy.proof import PARITY_FORMAT, load_records


def write_record(bundle: Bundle, record: dict[str, Any]) -> Path:
    """Put ``record`` into the bundle's parity.json, in place of the same engine's earlier one; return the path."""
    path = bundle.path / PARITY_FILE
    try:
        kept = [old.content for old in load_records(bundle) if old.engine != record["engine"]]
    except BundleError:
        kept = []  # a file that cannot be read proves nothing
    content = {"format": PARITY_FORMAT, "records": [*kept, record]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
