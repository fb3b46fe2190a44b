"""Pictures of a scene from its positions alone: a model, data and OpenGL context apart from the arm's."""

import mujoco
import numpy as np

from vla_runtime.sim.arm import Arm


class Eyes:
    """Renders any arm's scene from a copy of its positions. Belongs to the thread that made it."""

    def __init__(self):
        self._arm = Arm()

    def take(self, qpos: np.ndarray, camera: str, width: int = 96, height: int = 96) -> np.ndarray:
        """One picture, (height, width, 3) uint8 RGB, of the scene with the positions `qpos` (nq,)."""
        data = self._arm.data
        data.qpos[:] = qpos
        mujoco.mj_kinematics(self._arm.model, data)
        mujoco.mj_camlight(self._arm.model, data)
        return self._arm.render(camera, width, height)

    def close(self) -> None:
        """Free the OpenGL context."""
        self._arm.close()
