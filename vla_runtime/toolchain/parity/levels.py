"""The result of one level of parity, and how results add up to a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PASS, FAIL, INCONCLUSIVE, IMPLIED, MISSING = "pass", "fail", "inconclusive", "implied", "missing"


@dataclass(frozen=True)
class Level:
    """One level. ``faults`` say in words what broke the budget, and where."""

    name: str
    verdict: str
    faults: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def judge(name: str, faults: list[str], figures: dict[str, Any]) -> Level:
    """Pass when nothing is at fault."""
    return Level(name, FAIL if faults else PASS, faults, figures)


def overall(levels: Sequence[Level], required: Sequence[str]) -> str:
    """Add up: one failure fails; a required level that is missing or inconclusive leaves it inconclusive."""
    verdicts = {level.name: level.verdict for level in levels}
    if FAIL in verdicts.values():
        return FAIL
    settled = all(verdicts.get(name, MISSING) in (PASS, IMPLIED) for name in required)
    return PASS if settled else INCONCLUSIVE
