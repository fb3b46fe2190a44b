"""Adds a file to the list of those that a bundle vouches for."""

from pathlib import Path

import yaml

from vla_runtime.policy.bundle import POLICY_FILE, Bundle, load_bundle, sha256_of


def list_file(directory: Path, name: str) -> Bundle:
    """Write the SHA-256 of ``directory/name`` into policy.yaml; return the bundle, loaded and checked.

    Parity records made before cover the files without it, so they no longer count.
    """
    path = directory / POLICY_FILE
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["files"][name] = sha256_of(directory / name)
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
    return load_bundle(directory)
