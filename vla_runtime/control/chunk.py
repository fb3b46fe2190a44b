"""An action chunk, and which of its waypoints are still to come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Plan = TypeVar("Plan", bound="Sequence | np.ndarray")

_ROUNDING = 1e-9
"""Steps. 1.1 s / 0.1 s is a little more than 11 in floating point, yet waypoint 11 is due, not past."""


@dataclass(frozen=True, eq=False)
class ActionChunk:
    """What a policy answered: waypoint i, ``positions[i]``, is due at ``t0 + i * dt``.

    ``t0``: steady seconds of the oldest observation that went in; ``dt``: the policy's step, s; ``joint_names``: the
    policy's joints, any order; ``positions`` (H, n), absolute, rad (m for prismatic joints); ``request_id``: the
    request that it answers; ``received``: steady seconds of its arrival. Nothing is checked here: an answer may be
    anything, and :mod:`vla_runtime.control.acceptance` says what is wrong with it.
    """

    t0: float
    dt: float
    joint_names: tuple[str, ...]
    positions: np.ndarray
    request_id: str
    received: float

    @property
    def horizon(self) -> int:
        """The number of waypoints, H."""
        return len(self.positions)

    @property
    def end(self) -> float:
        """Steady seconds of the last waypoint."""
        return self.t0 + (self.horizon - 1) * self.dt


def elapsed_steps(latency_s: float, dt: float) -> int:
    """Return the index of the first waypoint that is due ``latency_s`` after the observation, or later.

    ``ceil(latency_s / dt - 1e-9)``. Raises ``ValueError`` on a negative or non-finite latency and on ``dt`` that is
    not positive and finite, or so small that the steps cannot be counted.
    """
    if not math.isfinite(latency_s) or latency_s < 0.0:
        raise ValueError(f"latency_s must be finite and not negative, got {latency_s}")
    if not (math.isfinite(dt) and dt > 0.0):
        raise ValueError(f"dt must be a positive time in seconds, got {dt}")
    steps = latency_s / dt
    if not math.isfinite(steps):
        raise ValueError(f"dt = {dt} s is too small: {latency_s} s of latency are more steps than can be counted")
    return max(0, math.ceil(steps - _ROUNDING))


def drop_elapsed(plan: Plan, latency_s: float, dt: float) -> Plan:
    """Return the part of ``plan`` (waypoints along the first axis) that is not in the past ``latency_s`` after t0.

    Raises ``ValueError`` on a negative or non-finite latency, on ``dt <= 0``, and when nothing of the plan is left.
    """
    skip = elapsed_steps(latency_s, dt)
    if skip >= len(plan):
        raise ValueError(
            f"nothing is left of the plan: {len(plan)} waypoints of {dt:g} s, and {latency_s:g} s have passed"
        )
    return plan[skip:]  # type: ignore[return-value]


def columns_by_name(have: Sequence[str], want: Sequence[str]) -> np.ndarray:
    """Return the indices into ``have`` that put its columns into the order of ``want``: (len(want),) int.

    Raises ``ValueError`` that names every joint which is missing, unknown or named twice.
    """
    have, want = list(have), list(want)
    problems = []
    twice = sorted({name for name in have if have.count(name) > 1})
    missing = [name for name in want if name not in have]
    unknown = [name for name in have if name not in want]
    if twice:
        problems.append(f"named twice: {', '.join(twice)}")
    if missing:
        problems.append(f"missing: {', '.join(missing)}")
    if unknown:
        problems.append(f"unknown: {', '.join(unknown)}")
    if problems:
        raise ValueError("joints " + "; ".join(problems))
    return np.array([have.index(name) for name in want], dtype=np.intp)
