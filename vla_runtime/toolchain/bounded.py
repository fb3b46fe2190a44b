"""An end in bounded time for a command that scripts wait for, whatever a library does in it.

DDS joins and leaves a domain in C++, with the interpreter held: no thread and no signal handler of Python ends that.
"""

import multiprocessing
import sys
from collections.abc import Callable


def within(limit_s: float, work: Callable[[], int]) -> int | None:
    """Return the exit code of ``work``, done in a forked process; None where it took longer: then it is killed.

    To be called before the first thread is started.
    """
    process = multiprocessing.get_context("fork").Process(target=_end_with, args=(work,), daemon=True)
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def _end_with(work: Callable[[], int]) -> None:
    try:
        sys.exit(work())
    except KeyboardInterrupt:  # whoever waits for us has it too, and says so
        sys.exit(130)
