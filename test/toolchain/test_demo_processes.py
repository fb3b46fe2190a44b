"""The demo's processes do not outlive it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT = """
import sys, time
from pathlib import Path
from vla_runtime.toolchain.demo.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    print(processes.start("sleeper", "sleeper", "60").popen.pid, flush=True)
    time.sleep(60)
"""
SLEEPER = """
import sys, time
if __name__ == "__main__":
    print("asleep", sys.argv[1:], flush=True)
    time.sleep(float(sys.argv[1]))
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def waited(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_killed_demo_takes_its_processes_along(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    path = os.pathsep.join((str(Path(__file__).resolve().parents[2]), str(tmp_path)))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    child = int(parent.stdout.readline())
    log = tmp_path / "sleeper.log"
    assert waited(lambda: "asleep" in log.read_text()), log.read_text()
    assert log.read_text() == "asleep ['60']\n"
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert waited(lambda: not alive(child))


def test_a_process_whose_parent_is_gone_already_does_not_begin(tmp_path):
    command = [sys.executable, "-m", "vla_runtime.toolchain.demo.tether", "1", "this"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the process that wanted this one (pid 1) is gone" in done.stderr
