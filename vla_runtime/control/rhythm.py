"""Whether planner and watchdog were started with the same control period: each message shows what it was made with."""

import numpy as np

from vla_runtime.control.finite import all_finite
from vla_runtime.control.trajectory import Trajectory

_SAME = 0.01  # periods that differ by less, as a share, are the same one


def planned_period_s(planned: Trajectory | None) -> float | None:
    """Return the control period of who made a trajectory, s, or None where it does not show.

    All points but the first (which is the instant of the message) lie on the control grid, those of the brake too:
    points at uneven distances come from a planner that has no such grid.
    """
    if planned is None or len(planned.times) < 4 or not all_finite(planned.times):
        return None
    steps = np.diff(planned.times[1:])
    step, longest = float(steps.min()), float(steps.max())
    return step if 0.0 < longest <= (1.0 + _SAME) * step else None


def other_rhythm(planned: Trajectory | None, period_s: float) -> str:
    """Say that ``planned`` was made for another control period than ``period_s``, and what to do; "" if not so."""
    planned_s = planned_period_s(planned)
    if planned_s is None or abs(planned_s - period_s) <= _SAME * period_s:
        return ""
    return (
        f"planned every {planned_s:.4g} s, but the watchdog's period_s is {period_s:.4g} s: start executor and "
        "watchdog with the same period_s"
    )
