"""Closed-loop episodes in the simulator, for policies of the arm that it simulates."""

from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.policy import Policy
from vla_runtime.toolchain.parity.closed_loop import Outcome

CAMERAS = {"front", "wrist"}
JOINTS = {"shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"}


def fits_simulator(policy: PolicyModel) -> bool:
    """Whether the simulated arm has the joints and cameras that the policy reads and moves."""
    return (
        set(policy.action.joints) == JOINTS
        and set(policy.state.joints) <= JOINTS
        and {camera.name for camera in policy.cameras} <= CAMERAS
    )


class SimulatedEpisodes:
    """Runs (policy, seed) on simulated time, with a fixed inference delay so that a seed gives the same episode."""

    def __init__(self, delay_ticks: float = 3):
        from vla_runtime.sim.closed_loop import ClosedLoop, LoopSettings, fixed_delay

        self._make = lambda policy: ClosedLoop(policy, LoopSettings(delay=fixed_delay(delay_ticks)))
        self._loops: dict[int, ClosedLoop] = {}

    def __call__(self, policy: Policy, seed: int) -> Outcome:
        """Run one episode and say how it ended: success, wrong_object or not_lifted."""
        if id(policy) not in self._loops:
            self._loops[id(policy)] = self._make(policy)
        result = self._loops[id(policy)].run(seed)
        return Outcome(result.success, result.how)

    def close(self) -> None:
        """Free the simulators."""
        for loop in self._loops.values():
            loop.close()
        self._loops.clear()
