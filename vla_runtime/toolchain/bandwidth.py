"""Measures how fast this machine reads memory, as the floor that weights set to a stage's time."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SIZE_BYTES = 256 << 20  # well beyond the last-level cache


def read_bandwidth(threads: int, rounds: int = 8) -> float:
    """Return the best read bandwidth in bytes/s that ``threads`` threads reach together.

    A dot product of a long vector with itself reads each byte once and is bound by memory; BLAS releases the GIL.
    """
    parts = np.array_split(np.ones(SIZE_BYTES // 4, np.float32), threads)
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            start = time.perf_counter()
            list(pool.map(lambda part: float(part @ part), parts))
            best = min(best, time.perf_counter() - start)
    return SIZE_BYTES / best
