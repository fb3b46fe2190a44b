"""The cells of a sweep (K x added delay x blending), what is concluded from them, and their table."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_runtime.sim.closed_loop import LoopSettings, fixed_delay
from vla_runtime.sim.episode import EpisodeResult, summarise
from vla_runtime.toolchain.parity.statistics import PairedCounts, drop_interval, pairs_needed

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Cell:
    """One setting of the sweep. Delays in control periods; `base_delay` is the policy's own."""

    blend: str
    k: int
    added_delay: float
    base_delay: float

    def settings(self, time_limit_s: float) -> LoopSettings:
        """How its episodes are run: K as given, never clamped, and the prefix only where the blending is about it."""
        return LoopSettings(
            delay=fixed_delay(self.base_delay + self.added_delay),
            executor={"k": self.k, "blend": self.blend, "clamp_k": False},
            send_prefix=self.blend == "rtc",
            time_limit_s=time_limit_s,
        )


@dataclass(frozen=True)
class Outcome:
    """A cell and its episodes, one per seed; and the reference's, with the same seeds."""

    cell: Cell
    results: Sequence[EpisodeResult]
    reference: Sequence[EpisodeResult]

    def counts(self) -> PairedCounts:
        """Successes of the pairs (reference, this cell)."""
        pairs = [(a.success, b.success) for a, b in zip(self.reference, self.results, strict=True)]
        return PairedCounts(
            pairs.count((True, True)),
            pairs.count((True, False)),
            pairs.count((False, True)),
            pairs.count((False, False)),
        )

    def verdict(self, budget: float) -> str:
        """`kept` or `lost`, with 95 % confidence (one-sided, Bonett-Price), or `open`."""
        _, low, high = drop_interval(self.counts(), CONFIDENCE)
        return "kept" if high <= budget else "lost" if low > budget else "open"

    def row(self, budget: float) -> dict[str, Any]:
        """Its line of the table."""
        figures = summarise(self.results)
        drop, low, high = drop_interval(self.counts(), CONFIDENCE)
        return {
            "blend": self.cell.blend,
            "k": self.cell.k,
            "added_delay": self.cell.added_delay,
            "delay": self.cell.base_delay + self.cell.added_delay,
            "episodes": figures["episodes"],
            "success": round(figures["success_rate"], 4),
            "success_low": round(figures["success_interval"][0], 4),
            "success_high": round(figures["success_interval"][1], 4),
            "drop": round(drop, 4),
            "drop_low": round(low, 4),
            "drop_high": round(high, 4),
            "verdict": self.verdict(budget),
            "wrong_object": figures["wrong_object"],
            "lift_time_p50_s": figures["lift_time_s"]["p50"],
            "path_length_rad": round(figures["path_length_rad"], 4),
            "jerk_rms": round(figures["jerk_rms"], 3),
            "action_rate_hz": round(figures["action_rate_hz"], 3),
            "seam_jump_p50_rad": figures["seam_jump_rad"]["p50"],
            "seam_jump_p95_rad": figures["seam_jump_rad"]["p95"],
            "starved_share": round(figures["starved_share"], 5),
            "refused_plans": figures["refused_plans"],
            "limit_violations": figures["limit_violations"],
            "elapsed_executed": figures["elapsed_executed"],
            "rejected_messages": figures["rejected_messages"],
        }


def conclude(outcomes: Iterable[Outcome], budget: float) -> str:
    """One sentence: the largest K that keeps success within the budget at every added delay, or what is missing.

    budget: largest drop in success against the reference, as a share.
    """
    cells: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome.cell.k, outcome.cell.blend), []).append(outcome)
    verdicts = {key: {outcome.verdict(budget) for outcome in group} for key, group in cells.items()}
    kept = [key for key, found in verdicts.items() if found == {"kept"}]
    best = max(kept, key=lambda key: key[0], default=None)
    undecided = [
        outcome
        for key, found in verdicts.items()
        if "lost" not in found and "open" in found and (best is None or key[0] > best[0])
        for outcome in cells[key]
        if outcome.verdict(budget) == "open"
    ]
    delays = sorted({outcome.cell.added_delay for group in cells.values() for outcome in group})
    where = f"at {delays[0]:g} ticks" if len(delays) == 1 else f"at {delays[0]:g} to {delays[-1]:g} ticks"
    allowed = f"within {budget:.0%} of the synchronous run {where} of added delay"
    more = _more_episodes(undecided, budget)
    if best is not None:
        larger = f"; a larger one is inconclusive, run {more} more episodes" if more else ""
        return f"The largest K that keeps success {allowed} is {best[0]}, with {best[1]}{larger}."
    if not undecided:
        return f"No K keeps success {allowed}: every one that was tried loses more."
    if more:
        return f"Inconclusive, run {more} more episodes: so far no K is proven to keep success {allowed}."
    return f"Inconclusive, and at these rates more episodes would not prove that a K keeps success {allowed}."


def _more_episodes(undecided: Sequence[Outcome], budget: float) -> int:
    """How many more seeds would settle the easiest of the undecided cells at present rates; 0: none would."""
    needed = [(outcome, pairs_needed(outcome.counts(), budget, CONFIDENCE)) for outcome in undecided]
    missing = [max(1, n - len(outcome.results)) for outcome, n in needed if n is not None]
    return min(missing, default=0)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people, at most 100 columns wide."""
    head = (
        f"{'blend':<10}{'K':>4}{'delay':>7}  {'success':<22}{'lift s':>7}{'path':>7}{'jerk':>7}{'rate':>6}"
        f"{'seam p95':>10}{'starved':>9}  verdict"
    )
    lines = [head, "-" * len(head)]
    for row in rows:
        interval = f"{row['success']:.0%} ({row['success_low']:.0%}-{row['success_high']:.0%})"
        lines.append(
            f"{row['blend']:<10}{row['k']:>4}{row['delay']:>7g}  {interval:<22}{row['lift_time_p50_s']:>7.2f}"
            f"{row['path_length_rad']:>7.2f}{row['jerk_rms']:>7.1f}{row['action_rate_hz']:>6.1f}"
            f"{row['seam_jump_p95_rad']:>10.4f}{row['starved_share']:>9.2%}  {row['verdict']}"
        )
    return "\n".join(lines)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows as CSV with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
