"""Real-time priority and locked memory for the control threads: asked for, and the outcome said plainly."""

import ctypes
import gc
import os
import resource
import sys

SWITCH_INTERVAL_S = 5e-4
"""How long a Python thread may keep the interpreter from the control thread (the default of 5 ms costs 5 ms)."""

_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def prepare_interpreter() -> None:
    """Make the interpreter fit for a 50 Hz loop: short switch interval, and no full collection over old objects.

    Call it when everything long-lived exists: those objects are never walked by the collector again, which is what
    makes a full collection take tens of milliseconds.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()


def request_realtime(priority: int) -> str:
    """Give the calling thread SCHED_FIFO ``priority`` (0: leave it alone). Returns "" on success, else the reason."""
    if priority <= 0:
        return "real-time priority is switched off (realtime_priority is 0)"
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except (OSError, AttributeError) as error:
        limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
        return (
            f"no SCHED_FIFO {priority} ({error}; RLIMIT_RTPRIO is {limit}): allow it with 'rtprio {priority}' for this "
            f"user in /etc/security/limits.d/, or with 'docker run --ulimit rtprio={priority} --cap-add SYS_NICE'"
        )
    return ""


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
