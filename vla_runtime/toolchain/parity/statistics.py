"""Statistics of paired episodes: the same seed run once with each policy."""

from dataclasses import dataclass
from math import ceil, comb, sqrt
from statistics import NormalDist


@dataclass(frozen=True)
class PairedCounts:
    """Outcomes of pairs: both succeeded, only the reference did, only the candidate did, neither did."""

    both: int
    only_reference: int
    only_candidate: int
    neither: int

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.both + self.only_reference + self.only_candidate + self.neither


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927), two-sided."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / trials
    centre = p + z * z / (2 * trials)
    half = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def mcnemar(counts: PairedCounts) -> float:
    """Two-sided exact p-value of McNemar's test: is the difference between the two more than chance?"""
    discordant = counts.only_reference + counts.only_candidate
    if discordant == 0:
        return 1.0
    fewer = min(counts.only_reference, counts.only_candidate)
    tail = sum(comb(discordant, k) for k in range(fewer + 1)) / 2**discordant
    return min(1.0, 2 * tail)


def drop_interval(counts: PairedCounts, confidence: float) -> tuple[float, float, float]:
    """Return (drop, lower, upper): success lost from reference to candidate, with one-sided bounds at ``confidence``.

    Bonett and Price (2012): one is added to each discordant cell, which keeps the bounds honest when there are none.
    """
    n = counts.pairs + 2
    lost, won = (counts.only_reference + 1) / n, (counts.only_candidate + 1) / n
    z = NormalDist().inv_cdf(confidence)
    half = z * sqrt(max(lost + won - (lost - won) ** 2, 0.0) / n)
    return lost - won, lost - won - half, lost - won + half


def pairs_needed(counts: PairedCounts, margin: float, confidence: float) -> int | None:
    """How many pairs would settle that the drop stays below ``margin`` at the present rates; None: none would."""
    n = counts.pairs + 2
    lost, won = (counts.only_reference + 1) / n, (counts.only_candidate + 1) / n
    room = margin - (lost - won)
    if room <= 0:
        return None
    z = NormalDist().inv_cdf(confidence)
    return ceil(z * z * (lost + won - (lost - won) ** 2) / room**2)
