"""What a check answers."""

from dataclasses import asdict, dataclass, field

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"


@dataclass(frozen=True)
class Result:
    """Outcome of one check: ``level`` (ok, warn, fail, skip), what was found, and what to do about it."""

    check: str
    level: str
    found: str
    advice: str = ""
    figures: dict[str, float | str] = field(default_factory=dict)

    def as_dict(self) -> dict:
        """Return plain data for JSON."""
        return asdict(self)
