"""Run a module as ``python -m`` does, in a process that does not outlive the one that started it.

    python -m vla_runtime.toolchain.demo.tether PARENT_PID MODULE [ARGUMENTS]

A demo that is killed outright ends nothing; control loops of real-time priority, left over, would starve the machine.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` (a pid) ends; end at once if it has ended already.

    The kernel watches the thread that started us, so that one must live as long as its process (a main thread does).
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(f"the process that wanted this one (pid {parent}) is gone")


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
