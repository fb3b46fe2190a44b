"""Parity records: which engine has proved itself on exactly which files.

parity.json of a bundle holds one record per engine. A record covers a bundle only if the hash of policy.yaml and of
every file are the same now as when it was measured: a changed normalisation or camera order voids it like a changed
weight.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from vla_runtime.policy.bundle import PARITY_FILE, POLICY_FILE, Bundle, sha256_of
from vla_runtime.policy.errors import BundleError, UnprovenEngineError

PARITY_FORMAT = "vla-parity/1"


@dataclass(frozen=True)
class ParityRecord:
    """One engine's record. ``content`` is everything that ``vla parity`` measured."""

    engine: str
    verdict: str  # pass | fail | inconclusive
    policy_sha256: str
    files: dict[str, str]
    content: dict[str, Any] = field(default_factory=dict)

    def covers(self, bundle: Bundle) -> bool:
        """Whether it was measured on exactly the files that the bundle holds now."""
        return self.policy_sha256 == sha256_of(bundle.path / POLICY_FILE) and self.files == bundle.hashes()


def load_records(bundle: Bundle) -> list[ParityRecord]:
    """Read parity.json; an empty list when there is none, BundleError when it is malformed."""
    path = bundle.path / PARITY_FILE
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != PARITY_FORMAT:
            raise BundleError(f"{path}: format is {content['format']!r}, this version reads {PARITY_FORMAT!r}")
        return [
            ParityRecord(str(r["engine"]), str(r["verdict"]), str(r["policy_sha256"]), dict(r["files"]), r)
            for r in content["records"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{path}: not a parity file ({error!r}); run `{proof_command(bundle)}` again") from None


def proof_command(bundle: Bundle, engine: str = "") -> str:
    """Return the command that proves a bundle. One that was quantised is compared with what it was quantised from."""
    reference = " --reference FIRST_BUNDLE" if "quantized_from" in bundle.policy.provenance else ""
    return f"vla parity {bundle.path}{reference}" + (f" --engine {engine}" if engine else "")


def require_proof(bundle: Bundle, engine: str) -> ParityRecord:
    """Return the passing record of ``engine`` for exactly these files.

    Raises UnprovenEngineError saying what is missing: no record, a record of other files (the first that differs is
    named), or a verdict other than pass; and the command that mends it.
    """
    remedy = f"run `{proof_command(bundle, engine)}`"
    records = [record for record in load_records(bundle) if record.engine == engine]
    if not records:
        raise UnprovenEngineError(f"bundle {bundle.path}: engine '{engine}' has no parity record; {remedy}")
    for record in records:
        if record.covers(bundle) and record.verdict == "pass":
            return record
    last = records[-1]
    if last.covers(bundle):
        why = f"its parity verdict is '{last.verdict}'; see parity_report.md"
    else:
        why = f"its parity record is of another {_first_difference(last, bundle)}"
    raise UnprovenEngineError(f"bundle {bundle.path}: engine '{engine}' is refused: {why}; {remedy}")


def _first_difference(record: ParityRecord, bundle: Bundle) -> str:
    now = bundle.hashes()
    for name in sorted({*now, *record.files}):
        if now.get(name) != record.files.get(name):
            return f"'{name}' (recorded {str(record.files.get(name))[:12]}, found {str(now.get(name))[:12]})"
    return POLICY_FILE
