"""The yardsticks of the control loop: what they keep is bounded, and their figures are those of the instants."""

import numpy as np
import pytest

from vla_runtime.toolchain.loop_yardsticks import Instants, figures


def test_the_newest_instants_are_kept_in_order():
    instants = Instants(kept=4)
    assert instants.newest().tolist() == []
    for k in range(7):
        instants.add(float(k))
    assert instants.count == 7
    assert instants.newest().tolist() == [3.0, 4.0, 5.0, 6.0]


def test_figures_of_a_stream_with_one_gap():
    times = np.arange(100) * 0.02
    times[50:] += 0.03
    found = figures(times)
    assert found["max_gap_ms"] == pytest.approx(50.0)
    assert found["period_error_p50_ms"] == pytest.approx(0.0, abs=1e-6)
    assert found["rate_hz"] == pytest.approx(99 / (99 * 0.02 + 0.03))
