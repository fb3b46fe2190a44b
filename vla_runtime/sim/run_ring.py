"""The last minutes of a simulated robot, in memory: commanded against measured joints, and every message's arrival."""

from collections import deque
from pathlib import Path

import numpy as np

ROWS = 60_000  # ten minutes at 100 Hz
MESSAGES = 30_000  # ten minutes at 50 Hz


class RunRing:
    """Rings of fixed size. Not thread-safe: the robot's lock guards it."""

    def __init__(self, joints: int, rows: int = ROWS, messages: int = MESSAGES):
        self._steady = np.zeros(rows)
        self._stamps = np.zeros(rows, dtype=np.int64)
        self._joints = np.zeros((rows, 2, joints))
        self._count = 0
        self._messages: deque[tuple[float, int, str]] = deque(maxlen=messages)

    def moved(self, steady_s: float, stamp_ns: int, commanded: np.ndarray, measured: np.ndarray) -> None:
        """Keep one instant: commanded and measured positions (n,) rad."""
        row = self._count % len(self._steady)
        self._steady[row], self._stamps[row] = steady_s, stamp_ns
        self._joints[row, 0], self._joints[row, 1] = commanded, measured
        self._count += 1

    def arrived(self, steady_s: float, stamp_ns: int, rejected: str) -> None:
        """Keep one message: when it arrived, its stamp, and the reason of its rejection ("" = taken)."""
        self._messages.append((steady_s, stamp_ns, rejected))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, oldest first.

        steady_s (m,), stamp_ns (m,), commanded (m, n), measured (m, n), arrival_s (k,), arrival_stamp_ns (k,),
        arrival_rejected (k,) text.
        """
        rows = len(self._steady)
        order = np.arange(max(0, self._count - rows), self._count) % rows
        messages = list(self._messages)
        return {
            "steady_s": self._steady[order],
            "stamp_ns": self._stamps[order],
            "commanded": self._joints[order, 0],
            "measured": self._joints[order, 1],
            "arrival_s": np.array([m[0] for m in messages], dtype=np.float64),
            "arrival_stamp_ns": np.array([m[1] for m in messages], dtype=np.int64),
            "arrival_rejected": np.array([m[2] for m in messages], dtype=np.str_),
        }

    def save(self, path: Path, joint_names: tuple[str, ...]) -> None:
        """Write an .npz with the arrays and `joint_names` (no pickled objects)."""
        np.savez_compressed(path, joint_names=np.array(joint_names, dtype=np.str_), **self.arrays())
