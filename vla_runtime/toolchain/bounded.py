"""An end in bounded time for a command that scripts wait for, whatever a library does in it.

DDS joins and leaves a domain in C++, with the interpreter held: no thread and no signal handler of Python ends that.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable

from vla_runtime.errors import UserError
from vla_runtime.toolchain.demo.tether import die_with_parent

GRACE_S = 15.0
"""So long may joining and leaving a domain take besides what the command waits: 0.5 s where the machine is free, 4 s
where ten programs want each core."""


def in_domain(wait_s: float, option: str, work: Callable[[], int]) -> int:
    """Return the exit code of ``work``, which joins a DDS domain, waits for ``wait_s`` seconds and leaves.

    ``option``: which one sets that time. Raises UserError where DDS keeps it from ending. To be called before the first
    thread is started.
    """
    code = within(wait_s + GRACE_S, work)
    if code is None:
        raise UserError(
            f"no end after {wait_s + GRACE_S:g} s ({wait_s:g} s of {option}): joining or leaving the DDS domain "
            "hangs, or this machine is too busy (`uptime`). A process that was killed may have left its shared memory "
            "locked: with FASTDDS_BUILTIN_TRANSPORTS=UDPv4 none is used"
        )
    return code


def within(limit_s: float, work: Callable[[], int]) -> int | None:
    """Return the exit code of ``work``, done in a forked process; None where it took longer: then it is killed.

    To be called before the first thread is started.
    """
    process = multiprocessing.get_context("fork").Process(target=_end_with, args=(work, os.getpid()), daemon=True)
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def _end_with(work: Callable[[], int], parent: int) -> None:
    die_with_parent(parent)  # whoever waits may be killed, as a health check that takes too long is
    try:
        sys.exit(work())
    except KeyboardInterrupt:  # whoever waits for us has it too, and says so
        sys.exit(130)
