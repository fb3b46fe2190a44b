import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.latency import MissLog, Rolling, StageLatencies


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=300), st.sampled_from([50, 95, 99, 100, 1]))
def test_percentiles_are_those_of_nearest_rank(values, q):
    rolling = Rolling(200)
    for value in values:
        rolling.add(value)
    kept = values[-200:]
    assert rolling.percentile(q) == np.percentile(kept, q, method="inverted_cdf")
    assert rolling.recent_max() == max(kept)
    assert rolling.recent_max(10) == max(kept[-10:])
    assert rolling.count == len(values)
    assert len(rolling) == len(kept)
    assert rolling.summary()["p50"] == pytest.approx(rolling.percentile(50), abs=1e-3)


def test_nothing_is_zero():
    rolling = Rolling()
    assert rolling.percentile(99) == 0.0
    assert rolling.recent_max() == 0.0
    assert rolling.summary() == {"p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}


def test_what_is_not_finite_is_left_out():
    rolling = Rolling()
    rolling.add(math.nan)
    rolling.add(math.inf)
    assert rolling.count == 0


def test_stages_are_kept_apart_and_bounded():
    stages = StageLatencies(size=10, max_stages=2)
    stages.add_all({"vision": 20.0, "action": 5.0})
    stages.add("vision", 0.040)
    for i in range(20):
        stages.add(f"odd{i}", 0.001)
    assert stages.slowest() == "vision"
    summary = stages.summary_ms()
    assert summary["vision"]["max"] == 40.0
    assert set(summary) == {"vision", "action", "other"}


def test_misses_are_counted_by_cause_and_the_last_kept():
    log = MissLog(size=3)
    for i in range(5):
        log.add(float(i), "answer" if i % 2 else "stream", 0.3, "vision")
    assert log.total == 5
    assert log.counts == {"stream": 3, "answer": 2}
    assert [miss.t for miss in log.last()] == [2.0, 3.0, 4.0]
    assert [miss.t for miss in log.last(1)] == [4.0]
    assert log.last(0) == []
    assert (log.last(1)[0].cause, log.last(1)[0].age_s, log.last(1)[0].stage) == ("stream", 0.3, "vision")
