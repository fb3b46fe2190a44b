"""Checks of the machine itself: versions, clocks and power mode, memory, GPU, real-time rights, jitter at 50 Hz."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import threading
import time
from pathlib import Path

from vla_runtime.toolchain.selftest.result import FAIL, OK, SKIP, WARN, Result

PERIOD_S = 0.02
JITTER_GOOD_MS, JITTER_BAD_MS = 1.0, 5.0
MEMORY_NEEDED_GIB = 4.0


def versions() -> Result:
    """Python, ROS and the packages that decide what the policy computes."""
    found = [f"Python {platform.python_version()}", platform.machine()]
    for package in ("numpy", "onnxruntime", "tensorrt", "cupy-cuda12x", "cupy-cuda13x", "openvino", "rclpy"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    if importlib.util.find_spec("rclpy") is None:
        return Result(
            "versions", FAIL, ", ".join(found), "rclpy is not importable: source /opt/ros/<distro>/setup.bash"
        )
    distro = os.environ.get("ROS_DISTRO", "from wheels")
    return Result("versions", OK, ", ".join([*found, f"ROS {distro}"]))


def clocks(root: Path = Path("/")) -> Result:
    """Whether the clocks may rise to what the figures were taken at: CPU governor, and on a Jetson the power mode."""
    governors = {
        path.read_text().strip() for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    }
    tegra = root / "etc/nv_tegra_release"
    if tegra.is_file():
        mode = _output("nvpmodel", "-q")
        found = f"{tegra.read_text().splitlines()[0]}; {' '.join(mode.split()) or 'nvpmodel does not answer'}"
        if "MAXN" not in mode:
            return Result("clocks", WARN, found, "for full speed: sudo nvpmodel -m 0 && sudo jetson_clocks")
        return Result("clocks", OK, found)
    if not governors:
        return Result("clocks", SKIP, "no CPU frequency control is visible (a virtual machine or a container)")
    if governors - {"performance", "schedutil"}:
        return Result("clocks", WARN, f"CPU governor {', '.join(sorted(governors))}",
                      "set 'performance': sudo cpupower frequency-set -g performance")  # fmt: skip
    return Result("clocks", OK, f"CPU governor {', '.join(sorted(governors))}")


def memory() -> Result:
    """Free memory against what nodes and engines need."""
    info = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(info[key].split()[0]) / 2**20 for key in ("MemTotal", "MemAvailable"))
    found = f"{free:.1f} of {total:.1f} GiB free"
    if free < MEMORY_NEEDED_GIB:
        return Result("memory", WARN, found, f"a policy and its engines need about {MEMORY_NEEDED_GIB:.0f} GiB")
    return Result("memory", OK, found, figures={"free_gib": free})


def gpu(root: Path = Path("/")) -> Result:
    """Whether there is a GPU and a runtime that can use it."""
    device = [name for name in ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu/igpu0/ctrl") if (root / name).exists()]
    if not device:
        return Result("gpu", SKIP, "no NVIDIA device: engines run on the CPU")
    if importlib.util.find_spec("tensorrt") is None:
        return Result("gpu", FAIL, f"/{device[0]} is there, the Python package 'tensorrt' is not",
                      "install JetPack's TensorRT for Python, or pip install 'vla-runtime[tensorrt]'")  # fmt: skip
    import tensorrt

    return Result("gpu", OK, f"/{device[0]}, TensorRT {tensorrt.__version__}")


def realtime() -> Result:
    """Whether control threads get real-time priority and locked memory."""
    from vla_runtime.nodes.realtime import lock_memory, own_thread_realtime

    refusals: list[str] = []
    thread = threading.Thread(target=lambda: refusals.append(own_thread_realtime(1)))
    thread.start()
    thread.join()
    refusals.append(lock_memory())
    reasons = [reason for reason in refusals if reason]
    if reasons:
        return Result("real time", WARN, "; ".join(reasons), "without it the 50 Hz loop jitters when the CPUs are busy")
    return Result("real time", OK, "SCHED_FIFO and locked memory are granted")


def jitter(seconds: float = 3.0) -> Result:
    """Period error of an empty 50 Hz loop with the priority that the control nodes would get."""
    from vla_runtime.nodes.loop import ControlLoop
    from vla_runtime.nodes.realtime import release_realtime

    loop = ControlLoop(lambda _now: None, PERIOD_S, name="selftest", priority=50, on_error=lambda _text: None)
    loop.start()
    time.sleep(seconds)
    loop.stop()
    release_realtime()  # the loop raises its whole process; the checks that follow are no control
    return judged_jitter(loop.statistics.figures(), loop.realtime_refusal)


def judged_jitter(figures, refusal: str) -> Result:
    """Judge the loop's figures (LoopFigures). ``refusal``: why it had no real-time priority, "" if it had."""
    found = f"p99 |period - 20 ms| {figures.period_error_p99_ms:.2f} ms, largest gap {figures.max_gap_ms:.1f} ms"
    numbers = {"period_error_p99_ms": figures.period_error_p99_ms, "max_gap_ms": figures.max_gap_ms}
    mend = "allow rtprio, or free a core" if refusal else "free a core; the priority is granted already"
    if figures.period_error_p99_ms > JITTER_BAD_MS:
        return Result("50 Hz jitter", FAIL, found, f"too busy or too slow for 50 Hz: {mend}", numbers)
    if figures.period_error_p99_ms > JITTER_GOOD_MS:
        return Result("50 Hz jitter", WARN, found, mend, numbers)
    return Result("50 Hz jitter", OK, found, figures=numbers)


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout
