"""What the robot's side measures of a command stream: its rhythm, and the steps of the command it leads to."""

from collections import deque
from typing import Any

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.sim.follower import Follower

PERIOD_S = 0.02
WINDOW = 3000  # messages over which the rhythm is taken: one minute at 50 Hz
# Rounding of stamps to nanoseconds and of the controller's interpolation; far below any encoder.
TOLERANCE = 1e-3
TOLERANCE_RAD = 1e-6


class StreamFigures:
    """Arrival times of messages, and the commands of the control updates, against the limits. Not thread-safe."""

    def __init__(self, limits: Limits):
        """limits: of the joints in the controller's order."""
        self._limits = limits
        self._lower, self._upper = limits.lower - TOLERANCE_RAD, limits.upper + TOLERANCE_RAD
        self._arrivals: deque[float] = deque(maxlen=WINDOW)
        self._command: np.ndarray | None = None
        self.largest_step_ratio = 0.0  # largest |step| / (velocity limit x time) of any joint since the last reset
        self.step_violations = 0
        self.position_violations = 0
        self.not_finite = 0

    def arrived(self, steady_s: float) -> None:
        """A message arrived."""
        self._arrivals.append(steady_s)

    def commanded(self, position: np.ndarray, period_s: float) -> bool:
        """A control update commanded `position` (n,) rad, period_s after the one before. False when not finite."""
        if not np.isfinite(position).all():
            self.not_finite += 1
            return False
        limits = self._limits
        if (position < self._lower).any() or (position > self._upper).any():
            self.position_violations += 1
        if self._command is not None and period_s > 0.0:
            step = np.abs(position - self._command) - TOLERANCE_RAD
            ratio = float((step / limits.velocity).max()) / period_s
            self.largest_step_ratio = max(self.largest_step_ratio, ratio)
            self.step_violations += ratio > 1.0 + TOLERANCE
        self._command = position
        return True

    def jumped(self) -> None:
        """The next command does not follow from the last one (the arm was put somewhere else)."""
        self._command = None

    def rhythm(self) -> dict[str, float]:
        """command_rate_hz, period_error_p99_ms (of |period - 20 ms|) and max_gap_ms over the last minute."""
        arrivals = np.array(self._arrivals)
        if len(arrivals) < 3:
            return {"command_rate_hz": 0.0, "period_error_p99_ms": 0.0, "max_gap_ms": 0.0}
        periods = np.diff(arrivals)
        return {
            "command_rate_hz": float(len(periods) / (arrivals[-1] - arrivals[0])),
            "period_error_p99_ms": float(np.percentile(np.abs(periods - PERIOD_S), 99)) * 1e3,
            "max_gap_ms": float(periods.max()) * 1e3,
        }

    @property
    def command(self) -> np.ndarray | None:
        """The last command, (n,) rad."""
        return self._command


def controller_report(follower: Follower, stream: StreamFigures) -> dict[str, Any]:
    """All that is counted about one controller, as plain values."""
    figures, command = follower.figures, stream.command
    return {
        "received": figures.received,
        "accepted": figures.accepted,
        "rejected": dict(figures.rejected),
        "rejected_messages": sum(figures.rejected.values()),
        "last_rejection": figures.last_rejection,
        "not_finite_messages": figures.not_finite,
        "replaced": figures.replaced,
        "spliced": figures.spliced,
        "holds": figures.holds,
        "holding": follower.holding,
        "resting": follower.resting,
        **{name: round(value, 3) for name, value in stream.rhythm().items()},
        "largest_step_ratio": round(stream.largest_step_ratio, 4),
        "step_violations": stream.step_violations,
        "position_violations": stream.position_violations,
        "not_finite_commands": stream.not_finite,
        "command": None if command is None else [round(float(q), 5) for q in command],
    }
