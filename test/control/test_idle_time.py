"""How long the arm waits for plans: 100 ms of inference, chunks of several lengths; docs/tuning.md has the table."""

import re
from pathlib import Path

import numpy as np
import pytest

TUNING = Path(__file__).parents[2] / "docs" / "tuning.md"
BEGIN_S = 2.0


def waves(times, n):
    return np.column_stack((0.5 * np.sin(1.3 * times), 0.4 * np.sin(0.9 * times + 1.0)))


def measured(stream, chunk_ms: int, seconds: float = 8.0, **parameters) -> tuple[str, float, float]:
    """The safe K, plans a second, and the share of ticks in which no plan was valid, once the first ones are there."""
    s = stream(waves, latency_s=0.0999, horizon=chunk_ms // 20, **parameters).run(BEGIN_S)
    before, begun = s.executor.snapshot()["accepted"], len(s.said)
    s.run(seconds)
    figures = s.executor.snapshot()
    silent = sum(said is None for said in s.said[begun:]) / (len(s.said) - begun)
    return figures["k_range"], (figures["accepted"] - before) / seconds, silent


@pytest.mark.parametrize("chunk_ms", [200, 300, 400, 600])
def test_the_table_in_the_docs_is_what_the_executor_does(stream, chunk_ms):
    row = re.search(rf"^\| {chunk_ms} ms \|(.*)\|$", TUNING.read_text(encoding="utf-8"), re.MULTILINE)
    safe, *cells = [cell.strip() for cell in row.group(1).split("|")]
    for cell, parameters in zip(cells, ({}, {"k": 1000}, {"queue_threshold": 0.001}), strict=True):
        k_range, plans, idle = measured(stream, chunk_ms, **parameters)
        assert k_range == safe
        assert cell == f"{plans:.1f}/s, {idle:.0%}"


@pytest.mark.parametrize("chunk_ms", [300, 400, 600])
@pytest.mark.parametrize("blend", ["cut", "crossfade", "rtc", "ensemble"])
def test_the_arm_never_waits_with_any_safe_k(stream, chunk_ms, blend):
    """Also with the largest: a plan must reach to the tick at which the next one comes."""
    low, high = (int(text) for text in measured(stream, chunk_ms, 0.2)[0].split(" to "))
    for k in (low, (low + high) // 2, high):
        assert measured(stream, chunk_ms, 2.0, k=k, blend=blend, clamp_k=False)[2] == 0.0
