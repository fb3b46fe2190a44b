"""Reasons to ask for a plan before its turn: the arm is not where it was told to be, or something pushes against it.

Each trigger has its own threshold (0 switches it off), its own counter, and fires again only after ``holdoff_s``.
Others (a change in the picture, a light verifier that disagrees with the plan) come in through :meth:`Triggers.note`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vla_runtime.control.trajectory import JointSample

_EFFORT_TIME_CONSTANT_S = 0.5
_MOST_NAMES = 32
"""Names that come from outside are counted one by one only up to this many: memory stays bounded."""


class Triggers:
    """Watches the joints and collects what others noticed."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._noted: list[str] = []
        self._usual_effort: np.ndarray | None = None
        self._effort_t = -math.inf
        self.largest_mismatch = 0.0

    def note(self, name: str) -> None:
        """Something outside noticed a reason ("vision", "verifier", "wrench"); looked at in the next tick."""
        if name not in self.counts and len(self.counts) >= _MOST_NAMES:
            name = "other"
        if name not in self._noted:
            self._noted.append(name)

    def fired(
        self,
        now: float,
        joints: JointSample | None,
        commanded_at: Callable[[float], np.ndarray | None],
        mismatch: float,
        effort_spike: float,
        holdoff_s: float,
    ) -> list[str]:
        """Return the names of the triggers that fire now.

        ``commanded_at(t)`` gives the command (n,) at a steady time, None where it is not known; ``mismatch``: allowed
        |commanded - measured| of any joint; ``effort_spike``: allowed |effort - its usual value| of any joint.
        """
        names = self._noted
        self._noted = []
        if joints is not None:
            commanded = commanded_at(joints.t) if mismatch > 0.0 else None
            if commanded is not None:
                self.largest_mismatch = float(np.abs(commanded - joints.position).max())
                if self.largest_mismatch > mismatch:
                    names.append("mismatch")
            if effort_spike > 0.0 and joints.effort is not None and self._spike(joints) > effort_spike:
                names.append("effort")
        fired = [name for name in names if now - self._last.get(name, -math.inf) >= holdoff_s]
        for name in fired:
            self._last[name] = now
            self.counts[name] = self.counts.get(name, 0) + 1
        return fired

    def _spike(self, joints: JointSample) -> float:
        """Distance of the effort from its slow mean; the mean takes the new sample in afterwards."""
        effort = np.nan_to_num(joints.effort)
        if self._usual_effort is None or self._usual_effort.shape != effort.shape:
            self._usual_effort, self._effort_t = effort, joints.t
            return 0.0
        spike = float(np.abs(effort - self._usual_effort).max())
        passed = max(0.0, joints.t - self._effort_t)
        self._usual_effort = self._usual_effort + (1.0 - math.exp(-passed / _EFFORT_TIME_CONSTANT_S)) * (
            effort - self._usual_effort
        )
        self._effort_t = joints.t
        return spike
