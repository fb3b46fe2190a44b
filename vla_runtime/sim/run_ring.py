"""The last minutes of a simulated robot, in memory: commanded against measured joints, and every message's arrival."""

from pathlib import Path

import numpy as np

ROWS = 60_000  # ten minutes at 100 Hz
MESSAGES = 30_000  # ten minutes at 50 Hz


class RunRing:
    """Rings of fixed size, in memory from the start on (some 8 MiB). Not thread-safe: the robot's lock guards it."""

    def __init__(self, joints: int, rows: int = ROWS, messages: int = MESSAGES):
        # Full, not empty or zeros: pages that are only given when they are written to would look like a leak.
        self._steady = np.full(rows, np.nan)
        self._stamps = np.full(rows, -1, dtype=np.int64)
        self._joints = np.full((rows, 2, joints), np.nan)
        self._count = 0
        self._arrivals = np.full(messages, np.nan)
        self._arrival_stamps = np.full(messages, -1, dtype=np.int64)
        self._arrival_reasons = np.full(messages, -1, dtype=np.int16)
        self._arrived = 0
        self._reasons: list[str] = []  # the controller knows a handful

    def moved(self, steady_s: float, stamp_ns: int, commanded: np.ndarray, measured: np.ndarray) -> None:
        """Keep one instant: commanded and measured positions (n,) rad."""
        row = self._count % len(self._steady)
        self._steady[row], self._stamps[row] = steady_s, stamp_ns
        self._joints[row, 0], self._joints[row, 1] = commanded, measured
        self._count += 1

    def arrived(self, steady_s: float, stamp_ns: int, rejected: str) -> None:
        """Keep one message: when it arrived, its stamp, and the reason of its rejection ("" = taken)."""
        row = self._arrived % len(self._arrivals)
        if rejected not in self._reasons:
            self._reasons.append(rejected)
        self._arrivals[row], self._arrival_stamps[row] = steady_s, stamp_ns
        self._arrival_reasons[row] = self._reasons.index(rejected)
        self._arrived += 1

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, oldest first.

        steady_s (m,), stamp_ns (m,), commanded (m, n), measured (m, n), arrival_s (k,), arrival_stamp_ns (k,),
        arrival_rejected (k,) text.
        """
        order = _oldest_first(self._count, len(self._steady))
        messages = _oldest_first(self._arrived, len(self._arrivals))
        reasons = np.array(self._reasons, dtype=np.str_)
        return {
            "steady_s": self._steady[order],
            "stamp_ns": self._stamps[order],
            "commanded": self._joints[order, 0],
            "measured": self._joints[order, 1],
            "arrival_s": self._arrivals[messages],
            "arrival_stamp_ns": self._arrival_stamps[messages],
            "arrival_rejected": reasons[self._arrival_reasons[messages]],
        }

    def save(self, path: Path, joint_names: tuple[str, ...]) -> None:
        """Write an .npz with the arrays and `joint_names` (no pickled objects)."""
        np.savez_compressed(path, joint_names=np.array(joint_names, dtype=np.str_), **self.arrays())


def _oldest_first(count: int, size: int) -> np.ndarray:
    """Return the rows of a ring of ``size`` that hold the last of ``count`` entries, oldest first."""
    return np.arange(max(0, count - size), count) % size
