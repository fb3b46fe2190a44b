"""Level 0: both policies must see and emit the same things, else comparing numbers means nothing."""

from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.toolchain.parity.levels import Level, judge

# What may differ between a checkpoint's bundles: how it is stored and who made it, never what it means.
FREE = {"name", "description", "licence", "stages", "files", "provenance"}


def compare_contracts(reference: PolicyModel, candidate: PolicyModel) -> Level:
    """Compare all fields of the two policy.yaml that carry meaning; each that differs is named with both values."""
    faults: list[str] = []
    _walk("", _meaning(reference), _meaning(candidate), faults)
    names = ([*reference.stages], [*candidate.stages])
    if names[0] != names[1]:
        faults.append(f"stages: reference {names[0]}, candidate {names[1]}")
    return judge("contract", faults, {})


def _meaning(policy: PolicyModel) -> dict:
    return {key: value for key, value in policy.model_dump().items() if key not in FREE}


def _walk(path: str, reference, candidate, faults: list[str]) -> None:
    if isinstance(reference, dict) and isinstance(candidate, dict):
        for key in reference.keys() | candidate.keys():
            _walk(f"{path}.{key}".lstrip("."), reference.get(key), candidate.get(key), faults)
    elif isinstance(reference, list) and isinstance(candidate, list) and len(reference) == len(candidate):
        for index, pair in enumerate(zip(reference, candidate)):
            _walk(f"{path}.{index}", *pair, faults)
    elif reference != candidate:
        faults.append(f"{path}: reference {reference!r}, candidate {candidate!r}")
