"""The policy node with faults on demand: for the demo and the tests, never for a robot.

`sim/fault` (std_msgs/String, JSON {"policy": KIND}) or the parameter `fault` says which; `none` behaves well again.
"""

import json
import sys
import time

import numpy as np
from std_msgs.msg import String

from vla_runtime.nodes.policy_node import PolicyNode
from vla_runtime.nodes.process import run
from vla_runtime.nodes.qos import LATCHED
from vla_runtime.policy.policy import Observation, Policy, PolicyOutput, Prefix, load_policy

KINDS = ("none", "slow", "hang", "nan", "raise", "width", "degrees")
SLOW_S = 0.4
HANG_S = 3.0


class FaultyPolicy:
    """A policy that misbehaves in the way that ``fault`` names. See :class:`vla_runtime.policy.policy.Policy`.

    slow: 0.4 s longer; hang: 3 s longer; nan: one NaN in the chunk; raise: an exception as of an engine; width: one
    joint missing; degrees: degrees where radians belong.
    """

    def __init__(self, policy: Policy, fault: str = "none"):
        self._policy = policy
        self.fault = fault
        self.bundle, self.engines = policy.bundle, policy.engines

    def warm_up(self) -> None:
        """Warm up without faults."""
        self._policy.warm_up()

    def infer(
        self, observation: Observation, prefix: Prefix | None = None, delay_steps: int = 0, seed: int | None = None
    ) -> PolicyOutput:
        """Compute one chunk, and spoil it."""
        fault = self.fault
        if fault == "raise":
            raise RuntimeError("the engine failed (a fault that was asked for)")
        begin = time.monotonic()
        output = self._policy.infer(observation, prefix, delay_steps, seed)
        if fault in ("slow", "hang"):
            time.sleep(SLOW_S if fault == "slow" else HANG_S)
        took_ms = {**output.stage_ms, "fault": 1e3 * (time.monotonic() - begin) - sum(output.stage_ms.values())}
        return PolicyOutput(spoil(output.actions, fault), took_ms if fault in ("slow", "hang") else output.stage_ms)


def spoil(actions: np.ndarray, fault: str) -> np.ndarray:
    """Return the chunk (H, n) as a fault leaves it."""
    if fault == "nan":
        actions = actions.copy()
        actions[len(actions) // 2, 0] = np.nan
    elif fault == "width":
        actions = actions[:, :-1]
    elif fault == "degrees":
        actions = np.degrees(actions)
    return actions


class FaultyPolicyNode(PolicyNode):
    """Hears which fault is wanted."""

    def __init__(self) -> None:
        self._fault = "none"
        super().__init__(self._load_faulty)
        self.create_subscription(String, "sim/fault", self._heard, LATCHED)
        self.declare_parameter("fault", "none")
        self._take(self.get_parameter("fault").value)

    def _load_faulty(self, *args, **kwargs) -> FaultyPolicy:
        return FaultyPolicy(load_policy(*args, **kwargs), self._fault)

    def _heard(self, message: String) -> None:
        wish = json.loads(message.data).get("policy")
        if wish is not None:
            self._take(wish)

    def _take(self, fault: str) -> None:
        if fault not in KINDS:
            self.get_logger().error(f"fault '{fault}' is not known; choose one of {', '.join(KINDS)}")
            return
        self._fault = fault
        if isinstance(self.policy, FaultyPolicy):
            self.policy.fault = fault


def main(args: list[str] | None = None) -> int:
    """Entry point: ``python -m vla_runtime.sim.faulty_policy --ros-args ...``."""
    return run(FaultyPolicyNode, args)


if __name__ == "__main__":
    sys.exit(main())
