"""What a policy gets to see in simulated time: cameras at their own rate, the newest joint state, no frame twice."""

from functools import partial

import numpy as np

from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.observation import NotReady, ObservationAssembler
from vla_runtime.policy.policy import Observation
from vla_runtime.sim.arm import Arm
from vla_runtime.sim.eyes import Eyes

MAX_INPUT_AGE_S = 0.2


class Senses:
    """Feeds an ObservationAssembler from an arm, as cameras and joint_states feed the policy's process.

    A picture is rendered only when an observation uses it, from the positions of the instant that it was taken at.
    """

    def __init__(self, arm: Arm, eyes: Eyes, policy: PolicyModel, instruction: str, fps: float):
        """fps: of each camera. Raises ValueError for a camera of the policy that the scene lacks."""
        self._arm, self._eyes, self._policy = arm, eyes, policy
        there = {arm.model.camera(i).name for i in range(arm.model.ncam)}
        missing = [camera.name for camera in policy.cameras if camera.name not in there]
        if missing:
            raise ValueError(f"the policy wants the cameras {missing}; the simulated robot has {sorted(there)}")
        self._assembler = ObservationAssembler(policy, max_age_s=MAX_INPUT_AGE_S)
        self._assembler.offer_instruction(instruction)
        self._period_s = 1.0 / fps
        self._frames = 0
        self._begin_s: float | None = None

    def pass_time(self, now_s: float) -> None:
        """To be called at every step of the simulation: takes the frame that is due."""
        if self._begin_s is None:
            self._begin_s = now_s
        if now_s < self._begin_s + self._frames * self._period_s - 1e-9:
            return
        self._frames += 1
        qpos = self._arm.data.qpos.copy()
        for camera in self._policy.cameras:
            size = (camera.width, camera.height)
            self._assembler.offer_image(camera.name, now_s, partial(self._eyes.take, qpos, camera.name, *size))

    def observe(self, now_s: float) -> Observation | NotReady:
        """What the policy would see now."""
        self._assembler.offer_state(now_s, self._arm.joint_names, np.asarray(self._arm.q))
        return self._assembler.take(now_s)
