"""Level (d): does it still do the job? The same seeds with both policies, and honest statistics."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vla_runtime.policy.policy import Policy
from vla_runtime.toolchain.parity.budgets import ClosedLoopBudget
from vla_runtime.toolchain.parity.levels import FAIL, INCONCLUSIVE, PASS, Level
from vla_runtime.toolchain.parity.statistics import PairedCounts, drop_interval, mcnemar, pairs_needed, wilson


@dataclass(frozen=True)
class Outcome:
    """How one episode ended; ``how``: 'success', or the way in which it failed."""

    success: bool
    how: str


Episode = Callable[[Policy, int], Outcome]  # (policy, seed) -> outcome; the same seed gives the same scene and noise
Progress = Callable[[int, int], None]


def compare_closed_loop(
    reference: Policy,
    candidate: Policy,
    episode: Episode,
    seeds: Sequence[int],
    budget: ClosedLoopBudget,
    progress: Progress = lambda done, total: None,
) -> Level:
    """Run every seed with both policies.

    Pass: the drop in success is below the margin with the budget's confidence (one-sided, Bonett-Price). Fail: it is
    above it with that confidence. Otherwise inconclusive, with the number of pairs that would settle it.
    A first seed is run twice with the reference: if the outcomes differ the harness itself is broken, and nothing is
    concluded.
    """
    if episode(reference, seeds[0]) != episode(reference, seeds[0]):
        return Level("closed_loop", FAIL, ["the harness is broken: the reference run twice from one seed differs"])
    pairs = []
    for done, seed in enumerate(seeds):
        pairs.append((episode(reference, seed), episode(candidate, seed)))
        progress(done + 1, len(seeds))
    return judge_pairs(pairs, budget)


def judge_pairs(pairs: Sequence[tuple[Outcome, Outcome]], budget: ClosedLoopBudget) -> Level:
    """Judge (reference, candidate) outcomes."""
    kinds = Counter((ours.success, theirs.success) for ours, theirs in pairs)
    counts = PairedCounts(kinds[True, True], kinds[True, False], kinds[False, True], kinds[False, False])
    drop, low, high = drop_interval(counts, budget.confidence)
    needed = pairs_needed(counts, budget.margin, budget.confidence)
    successes = {
        "reference": counts.both + counts.only_reference,
        "candidate": counts.both + counts.only_candidate,
    }
    figures = {
        "episodes": counts.pairs,
        "successes": successes,
        "ci": {who: list(wilson(won, counts.pairs)) for who, won in successes.items()},
        "only_reference": counts.only_reference,
        "only_candidate": counts.only_candidate,
        "drop": (successes["reference"] - successes["candidate"]) / max(counts.pairs, 1),
        "drop_bounds": [low, high],
        "mcnemar_p": mcnemar(counts),
        "episodes_needed": needed,
        "how": {
            "reference": dict(Counter(ours.how for ours, _ in pairs)),
            "candidate": dict(Counter(theirs.how for _, theirs in pairs)),
        },
    }
    bounds = f"between {low:.1%} and {high:.1%}; the margin {budget.margin:.1%}"
    percent = f"the drop in success is {figures['drop']:.1%}, {bounds}"
    if high <= budget.margin:
        return Level("closed_loop", PASS, [], figures)
    if low > budget.margin:
        return Level("closed_loop", FAIL, [percent], figures)
    more = (
        f"about {needed} pairs would settle it" if needed is not None else "more episodes would not help at these rates"
    )
    return Level("closed_loop", INCONCLUSIVE, [f"{percent}; {more}"], figures)
