"""Measures how fast this machine reads memory, as the floor that weights set to a stage's time."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SIZE_BYTES = 256 << 20  # well beyond the last-level cache of a robot's computer


class MemoryReader:
    """Reads ``size`` bytes with ``threads`` threads together, each time it is asked.

    A dot product of a long vector with itself reads each byte once and is bound by memory; BLAS releases the GIL.
    """

    def __init__(self, threads: int, size: int = SIZE_BYTES, clock: Callable[[], float] = time.perf_counter):
        self.size, self._clock = size, clock
        self._parts = np.array_split(np.ones(size // 4, np.float32), threads)
        self._pool = ThreadPoolExecutor(threads)

    def seconds(self) -> float:
        """Read everything once; return how long it took."""
        start = self._clock()
        list(self._pool.map(lambda part: float(part @ part), self._parts))
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
