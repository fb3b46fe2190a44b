"""Real-time priority and locked memory for the control threads: asked for, and the outcome said plainly."""

import contextlib
import ctypes
import gc
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

SWITCH_INTERVAL_S = 1e-4
"""How long a Python thread may keep the interpreter from the control thread (the default of 5 ms costs 5 ms)."""

COLLECT_AFTER = (20_000, 20, 50)
"""Allocations between collections: Python's default of 700 collects every other tick, for almost nothing."""

RUNAWAY_S = 3.0

HEAP_RESERVE = 2 << 20
"""Bytes that a control process has at hand in each heap that matters: calls that wait for the recorder, at a busy
moment, are a megabyte more than usual."""

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_M_TRIM_THRESHOLD, _NEVER = -1, 2**31 - 1
_BLOCK = 64 << 10  # malloc takes larger ones from the system, each by itself


def prepare_interpreter() -> None:
    """Make the interpreter fit for a 50 Hz loop: short switch interval, and no full collection over old objects.

    Call it when everything long-lived exists: those objects are never walked by the collector again, which is what
    makes a full collection take tens of milliseconds.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def request_realtime(priority: int) -> str:
    """Give every thread of this process SCHED_FIFO, the calling one ``priority``, the others one less.

    All of them, because a control thread waits for whoever holds the interpreter, and for the threads of DDS: one
    of normal priority that is not scheduled stops it for as long (0.2 s, measured at a load of 14 on two cores).
    Only for processes that hold no inference. A thread that runs for ``RUNAWAY_S`` without ever waiting has gone wild
    and is killed with its process (RLIMIT_RTTIME), or it would take the core from everybody.
    0: leave everything alone. Returns "" on success, else the reason.
    """
    if priority <= 0:
        return "real-time priority is switched off (realtime_priority is 0)"
    try:
        _limit_runaways()
        own = threading.get_native_id()
        _schedule_all(os.SCHED_FIFO, lambda thread: priority if thread == own else max(1, priority - 1))
    except (OSError, AttributeError, ValueError) as error:
        return _refusal(priority, error)
    return ""


def own_thread_realtime(priority: int) -> str:
    """Give the calling thread alone SCHED_FIFO: for tools that measure. Threads it starts inherit it.

    Returns "" on success, else the reason.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        return _refusal(priority, error)
    return ""


def _refusal(priority: int, error: Exception) -> str:
    limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
    return (
        f"no SCHED_FIFO {priority} ({error}; RLIMIT_RTPRIO is {limit}): allow it with 'rtprio {priority}' for this "
        f"user in /etc/security/limits.d/, or with 'docker run --ulimit rtprio={priority} --cap-add SYS_NICE'"
    )


def release_realtime() -> None:
    """Give every thread of this process its normal priority back."""
    with contextlib.suppress(OSError, AttributeError):
        _schedule_all(os.SCHED_OTHER, lambda thread: 0)


def stay_on(cpu: int) -> str:
    """Keep every thread of this process on one core; those that are started later inherit it. -1: leave them alone.

    Its caches stay warm there: beside inference on two cores, the control loops took a tenth less time. Returns "" on
    success, else the reason.
    """
    if cpu < 0:
        return ""
    try:
        allowed = sorted(os.sched_getaffinity(0))
        _for_all_threads(lambda thread: os.sched_setaffinity(thread, {cpu}))
    except (OSError, AttributeError, ValueError) as error:
        return (
            f"not kept on core {cpu} ({error}): this process may run on {allowed}; set the parameter cpu to one of them"
        )
    return ""


def _schedule_all(policy: int, priority: Callable[[int], int]) -> None:
    _for_all_threads(lambda thread: os.sched_setscheduler(thread, policy, os.sched_param(priority(thread))))


def _for_all_threads(do: Callable[[int], None]) -> None:
    for entry in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # one that has just ended
            do(int(entry.name))


def _limit_runaways() -> None:
    wanted = round(RUNAWAY_S * 1e6)
    hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    if hard == resource.RLIM_INFINITY or hard > wanted:
        resource.setrlimit(resource.RLIMIT_RTTIME, (wanted, hard))


def lock_memory() -> str:
    """Keep what this process touches in memory (mlockall, on fault). Returns "" on success, else the reason."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0:
        return ""
    reason = os.strerror(ctypes.get_errno())
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return (
        f"memory is not locked ({reason}; RLIMIT_MEMLOCK is {limit} bytes): allow it with 'memlock unlimited' in "
        "/etc/security/limits.d/, or with 'docker run --ulimit memlock=-1'"
    )


def keep_heap() -> None:
    """Have malloc keep what is freed, for good: a control loop wants no memory back from the system, page by page.

    And memory that comes and goes with every busy moment looks like a leak to whoever compares two instants. glibc
    only; elsewhere nothing happens.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_TRIM_THRESHOLD, _NEVER)


def reserve_heap(size: int = HEAP_RESERVE) -> None:
    """Give the heap of the calling thread ``size`` free bytes, touched (glibc has a heap for every few threads).

    They stay only after :func:`keep_heap`.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    blocks = [libc.malloc(_BLOCK) for _ in range(size // _BLOCK)]
    for block in blocks:
        if block:
            ctypes.memset(block, 0, _BLOCK)
    for block in blocks:
        libc.free(block)
