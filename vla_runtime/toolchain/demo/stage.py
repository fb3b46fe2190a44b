"""Sets the stage of a demo: which processes run, with which parameters, and when they are ready."""

import importlib.util
import os
import time
from dataclasses import dataclass
from pathlib import Path

from vla_runtime.errors import UserError
from vla_runtime.toolchain.demo.conductor import Conductor
from vla_runtime.toolchain.demo.faults import Fault
from vla_runtime.toolchain.demo.processes import Processes

ROBOT = "so101_sim"
CONTROL = ("watchdog", "executor")
DRIVING = ("NOMINAL", "COASTING")
READY_TIMEOUT_S = 60.0
REFUSED_FOR_S = 12.0
"""Refusals at the start (no picture yet) pass by themselves; one that lasts longer does not."""


@dataclass(frozen=True)
class Scene:
    """What the first episode begins with."""

    bundle: Path
    seed: int
    instruction: str


def set_stage(processes: Processes, bag: Path, scene: Scene, fault: Fault | None) -> None:
    """Start recorder, watchdog, executor, robot and policy, in the order in which they listen to each other.

    Raises:
        UserError: MuJoCo is not installed.
    """
    if importlib.util.find_spec("mujoco") is None:
        raise UserError("the simulated robot needs MuJoCo: pip install 'vla-runtime[sim]'")
    robot = ("-p", f"robot:={ROBOT}")
    processes.start("record", "vla_runtime.cli", "record", str(bag), "--image-hz", "2", "--quiet",
                    # above the control loops (50): it takes the figures, as a controller would that has its own core
                    "--realtime-priority", "60")  # fmt: skip
    cores = sorted(os.sched_getaffinity(0))
    # As on a robot: on a core where caches stay warm. The first one is where interrupts are served.
    core = ("-p", f"cpu:={cores[-1]}") if len(cores) > 1 else ()
    for name in CONTROL:
        processes.start(name, f"vla_runtime.nodes.{name}_node", "--ros-args", *robot, *core)
    processes.start("sim_robot", "vla_runtime.sim.robot_node", "--ros-args", *robot, "-p", f"seed:={scene.seed}",
                    "-p", f"instruction:={scene.instruction}",
                    # A real controller does not wait for inference to free a core; neither must the simulated one.
                    "-p", "realtime_priority:=40")  # fmt: skip
    module = "vla_runtime.sim.faulty_policy" if fault and fault.policy_fault else "vla_runtime.nodes.policy_node"
    processes.start("policy", module, "--ros-args", *robot, "-p", f"bundle:={scene.bundle}",
                    "-p", f"instruction:={scene.instruction}")  # fmt: skip


def wait_until_driving(processes: Processes, conductor: Conductor, tick) -> None:
    """Wait until the policy has the arm.

    Raises:
        UserError: a process has ended, or nothing drives within a minute; with the end of the logs that say why.
    """

    stuck_since: float | None = None

    def settled() -> bool:
        nonlocal stuck_since
        view = conductor.view()
        refused = any(who.endswith(": lifecycle") and level >= 2 for who, _, level in view.problems)
        stuck_since = (stuck_since or time.monotonic()) if refused else None
        stuck = stuck_since is not None and time.monotonic() - stuck_since > REFUSED_FOR_S
        return stuck or bool(processes.dead()) or view.state in DRIVING

    conductor.wait_for(settled, READY_TIMEOUT_S, tick)
    dead = processes.dead()
    if dead:
        tails = "\n\n".join(f"{process.name}:\n{process.last_lines()}" for process in dead)
        raise UserError(f"{', '.join(process.name for process in dead)} could not run.\n\n{tails}")
    view = conductor.view()
    if view.state not in DRIVING:
        problems = "\n".join(f"  {who}: {what}" for who, what, _ in view.problems)
        raise UserError(f"nothing drives the arm: the watchdog is in {view.state} ({view.cause}).\n{problems}")


def stolen_seconds() -> tuple[float, float]:
    """Time that a hypervisor took from this machine's processors, and all processor time, since the boot, s."""
    ticks = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7] / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(processes: Processes, names: tuple[str, ...] = CONTROL) -> float:
    """CPU time that processes have used so far, user and system, s."""
    ticks = 0
    for name in names:
        stat = Path(f"/proc/{processes.by_name[name].popen.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")
