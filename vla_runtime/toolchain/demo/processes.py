"""The demo's processes: started in a DDS domain of their own, signalled, and surely ended: even if we are killed."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

TETHER = "vla_runtime.toolchain.demo.tether"


@dataclass
class NodeProcess:
    """One node in a process of its own, with its output in a file."""

    name: str
    arguments: tuple[str, ...]  # of `python -m`: a module and what it is told
    log_path: Path
    popen: subprocess.Popen = field(init=False)

    def __post_init__(self):
        self.start()

    def start(self) -> None:
        """Start it (again)."""
        with self.log_path.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-u", "-m", TETHER, str(os.getpid()), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal reaches us alone: we end them in the right order
            )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    def send(self, number: int) -> None:
        """Send a signal to it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def stop(self, patience_s: float = 10.0) -> None:
        """End it as Ctrl-C would, and by force if it does not end (then its shared memory is left)."""
        if self.alive:
            self.send(signal.SIGCONT)
            self.send(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(patience_s)
        self.send(signal.SIGKILL)
        self.popen.wait()

    def last_lines(self, count: int = 12) -> str:
        """Return the end of its output, for an error message."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-count:])


def environment(domain: int) -> dict[str, str]:
    """Return the environment of every process of a demo, this one included."""
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "RCUTILS_COLORIZED_OUTPUT": "0",
        # OpenMP threads that spin at barriers starve the control loops on a small machine.
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": "1",
    }


class Processes:
    """The set of processes of one demo. A context manager: leaving it ends them all."""

    def __init__(self, log_folder: Path):
        self._log_folder = log_folder
        self.by_name: dict[str, NodeProcess] = {}

    def start(self, name: str, module: str, *arguments: str) -> NodeProcess:
        """Start ``python -m module arguments`` under a name."""
        process = NodeProcess(name, (module, *arguments), self._log_folder / f"{name}.log")
        self.by_name[name] = process
        return process

    def dead(self) -> list[NodeProcess]:
        """Those that have ended."""
        return [process for process in self.by_name.values() if not process.alive]

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_exc) -> None:
        # Watchdog before robot: the stop trajectory must still find a controller.
        for name in sorted(self.by_name, key=lambda name: ("policy", "executor", "watchdog").index(name)
                           if name in ("policy", "executor", "watchdog") else 9):  # fmt: skip
            self.by_name[name].stop()
