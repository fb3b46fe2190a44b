"""`vla sweep`: what it concludes from outcomes, and one small sweep from end to end."""

import csv
import json

import pytest

from vla_runtime.cli import main
from vla_runtime.sim.episode import EpisodeResult
from vla_runtime.toolchain.sweep_grid import Cell, Outcome, conclude
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


def episode(seed, success):
    return EpisodeResult(
        seed=seed, instruction="", success=success, wrong_object=False, lift_time_s=3.0 if success else None,
        duration_s=3.0, requests=10, answers=10, inference_ms=(5.0,), seam_jumps=(0.01,), jerk=1.0, path_length=2.0,
        starved_ticks=0, ticks=100, time_in_state_s={}, deadline_misses=0, refused_plans=0, rejected_messages=0,
        elapsed_executed=0, violations={},
    )  # fmt: skip


def outcome(k, successes, episodes=200, added=3.0, blend="rtc", reference=None):
    """The cell succeeds in the first `successes` seeds, the reference in the first `reference` (default: all)."""
    results = [episode(i, i < successes) for i in range(episodes)]
    before = [episode(i, i < (episodes if reference is None else reference)) for i in range(episodes)]
    return Outcome(Cell(blend, k, added, 3.0), results, before)


def test_the_largest_k_that_is_proven():
    outcomes = [outcome(5, 199), outcome(10, 197), outcome(20, 120)]
    assert [o.verdict(0.1) for o in outcomes] == ["kept", "kept", "lost"]
    assert conclude(outcomes, 0.1) == (
        "The largest K that keeps success within 10% of the synchronous run at 3 ticks of added delay is 10, with rtc."
    )


def test_a_small_k_may_be_worse_than_a_larger_one():
    assert "is 20, with rtc." in conclude([outcome(5, 120), outcome(20, 199)], 0.1)


def test_every_added_delay_must_keep_it_and_the_best_blending_is_named():
    outcomes = [
        outcome(5, 200, blend="cut"),
        outcome(5, 100, blend="cut", added=9.0),
        outcome(5, 200),
        outcome(5, 199, added=9.0),
        outcome(10, 200),
        outcome(10, 150, added=9.0),
    ]
    assert "at 3 to 9 ticks of added delay is 5, with rtc." in conclude(outcomes, 0.1)


def test_too_few_episodes_are_inconclusive_and_it_says_how_many_more():
    few = outcome(5, 10, episodes=10)
    assert few.verdict(0.1) == "open"
    sentence = conclude([few], 0.1)
    assert sentence.startswith("Inconclusive, run ")
    more = int(sentence.split()[2])
    settled = outcome(5, 10 + more, episodes=10 + more)
    assert settled.verdict(0.1) == "kept"
    quarter = 10 + more // 4
    assert outcome(5, quarter, episodes=quarter).verdict(0.1) == "open"


def test_an_open_larger_k_is_mentioned():
    sentence = conclude([outcome(5, 200), outcome(10, 185)], 0.1)
    assert "is 5, with rtc; a larger one is inconclusive, run " in sentence


def test_nothing_kept():
    assert conclude([outcome(5, 50)], 0.1).startswith("No K keeps success within 10%")


def test_a_drop_that_sits_on_the_budget_cannot_be_proven():
    assert "more episodes would not prove" in conclude([outcome(5, 178)], 0.1)


def test_a_small_sweep(tmp_path, capsys):
    bundle = write_tiny_bundle(tmp_path / "tiny")
    out = tmp_path / "out"
    arguments = ["--k", "10,5", "--added", "0", "--blend", "rtc", "--episodes", "1", "--time-limit", "0.8"]
    assert main(["sweep", "--bundle", str(bundle), "--allow-unproven", "--out", str(out), *arguments]) == 0
    with (out / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["blend"], row["k"], row["delay"]) for row in rows] == [("rtc", "5", "3.0"), ("rtc", "10", "3.0")]
    assert float(rows[0]["action_rate_hz"]) > float(rows[1]["action_rate_hz"]) > 0
    assert all(int(row["limit_violations"]) == 0 for row in rows)
    assert (out / "sweep.png").stat().st_size > 10_000
    content = json.loads((out / "sweep.json").read_text())
    assert content["seeds"] == [1_000_000]
    assert content["sentence"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--k", "0,5"], "--k is '0,5'; the smallest allowed is 1"),
        (["--added", "x"], "--added is 'x'; give numbers"),
        (["--blend", "melt"], "--blend names melt; there are cut"),
        (["--budget", "2"], "--budget is 2; it must be between 0 and 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, says, capsys):
    assert main(["sweep", *arguments]) == 2
    assert says in capsys.readouterr().err
