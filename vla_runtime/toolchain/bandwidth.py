"""Measures how fast this machine reads memory, as the floor that weights set to a stage's time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SIZE_BYTES = 256 << 20  # well beyond the last-level cache of a robot's computer


class MemoryReader:
    """Reads ``size`` bytes with ``threads`` threads together, each time it is asked.

    The largest byte of a long vector: NumPy takes 64 of them at a time, so that it waits for memory alone, and releases
    the GIL. (A dot product in float32 reached 0.84 of it on one thread of a Xeon, a loop of plain loads in C 1.1.)
    """

    def __init__(self, threads: int, size: int = SIZE_BYTES, clock: Callable[[], float] = time.perf_counter):
        self.size, self._clock = size, clock
        self._parts = np.array_split(np.ones(size, np.uint8), threads)
        self._pool = ThreadPoolExecutor(threads)

    def seconds(self) -> float:
        """Read everything once; return how long it took."""
        start = self._clock()
        list(self._pool.map(lambda part: int(part.max()), self._parts))
        return self._clock() - start

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def read_bandwidth(threads: int, rounds: int = 8) -> float:
    """Return the best read bandwidth in bytes/s that ``threads`` threads reach together."""
    reader = MemoryReader(threads)
    try:
        return reader.size / min(reader.seconds() for _ in range(rounds))
    finally:
        reader.close()
