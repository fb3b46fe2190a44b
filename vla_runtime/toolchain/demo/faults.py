"""The faults that ``vla demo --fault`` shows: what happens, when, and how it ends."""

import signal
from dataclasses import dataclass

from vla_runtime.toolchain.demo.processes import Processes


@dataclass(frozen=True)
class Fault:
    """A fault to be caught in front of the audience.

    ``policy_fault`` and ``camera_fault`` are the names under which the faulty policy and the simulated cameras know it;
    ``kill`` and ``freeze`` name a process.
    """

    story: str
    policy_fault: str = ""
    camera_fault: str = ""
    kill: str = ""
    freeze: str = ""


FAULTS = {
    "slow": Fault("inference takes 0.4 s longer than usual", policy_fault="slow"),
    "hang": Fault("the policy's process is frozen (SIGSTOP), and thawed later", freeze="policy"),
    "kill": Fault("the policy's process is killed (SIGKILL), and started again later", kill="policy"),
    "nan": Fault("the policy answers with NaN", policy_fault="nan"),
    "stale_camera": Fault("the front camera sends the same picture again and again", camera_fault="front"),
    "dead_executor": Fault("the executor's process is killed (SIGKILL), and started again later", kill="executor"),
}


class FaultInjector:
    """Strikes once, and makes good again.

    Args:
        fault: what to do.
        processes: the demo's processes.
        say: called with (topic of the fault, command) for faults inside the policy or the camera.
    """

    def __init__(self, fault: Fault, processes: Processes, say):
        self._fault, self._processes, self._say = fault, processes, say

    def strike(self) -> None:
        """Let the fault happen."""
        if self._fault.kill:
            self._processes.by_name[self._fault.kill].send(signal.SIGKILL)
        if self._fault.freeze:
            self._processes.by_name[self._fault.freeze].send(signal.SIGSTOP)
        if self._fault.policy_fault:
            self._say("policy", self._fault.policy_fault)
        if self._fault.camera_fault:
            self._say("camera", self._fault.camera_fault)

    def heal(self) -> None:
        """Make good what was broken."""
        if self._fault.kill:
            self._processes.by_name[self._fault.kill].popen.wait()
            self._processes.by_name[self._fault.kill].start()
        if self._fault.freeze:
            self._processes.by_name[self._fault.freeze].send(signal.SIGCONT)
        if self._fault.policy_fault:
            self._say("policy", "none")
        if self._fault.camera_fault:
            self._say("camera", "none")
