"""The simulated arm: MuJoCo behind the few calls that a robot driver needs."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from vla_runtime.sim.kinematics import HOME
from vla_runtime.sim.scene import CUBE_HALF_M, JOINTS, Scene, build_model, draw_scene
from vla_runtime.sim.task import COLOURS, Outcome, judge

PHYSICS_STEP_S = 0.002


class Arm:
    """A six-joint arm with position servos, three cubes and two cameras, on simulated time.

    Joint vectors are float64 (6,) in rad, ordered as ``joint_names``. Not thread-safe; the cameras need the thread that
    made the first ``render`` call (an OpenGL context belongs to a thread).
    """

    joint_names: tuple[str, ...] = JOINTS
    home: np.ndarray = HOME

    def __init__(self, seed: int = 0, instruction: str | None = None):
        self.model = build_model()
        self.model.opt.timestep = PHYSICS_STEP_S
        self.data = mujoco.MjData(self.model)
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}
        self._cubes = [self.model.body(f"cube_{colour}").id for colour in COLOURS]
        self._cube_qpos = [int(self.model.jnt_qposadr[self.model.body_jntadr[b]]) for b in self._cubes]
        self.lower, self.upper = self.model.jnt_range[: len(JOINTS)].T.copy()
        self.scene: Scene
        self.reset(seed, instruction)

    def reset(self, seed: int, instruction: str | None = None, joints: Sequence[float] | None = None) -> Scene:
        """Draw a new scene, put the arm at rest at ``joints`` (home by default), and set the time to 0."""
        self.scene = draw_scene(seed, instruction)
        mujoco.mj_resetData(self.model, self.data)
        q = np.asarray(self.home if joints is None else joints, dtype=float)
        self.data.qpos[: len(JOINTS)] = q
        self.data.ctrl[:] = q
        for adr, colour in zip(self._cube_qpos, COLOURS, strict=True):
            x, y, yaw = self.scene.cubes[colour]
            self.data.qpos[adr : adr + 7] = (x, y, CUBE_HALF_M, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
        mujoco.mj_forward(self.model, self.data)
        return self.scene

    def set_targets(self, q: Sequence[float]) -> None:
        """Give the servos new position targets, cut to the joints' ranges. ValueError if not six finite numbers."""
        target = np.asarray(q, dtype=float)
        if target.shape != (len(JOINTS),) or not np.isfinite(target).all():
            raise ValueError(f"targets must be {len(JOINTS)} finite numbers, got {q!r}")
        self.data.ctrl[:] = np.clip(target, self.lower, self.upper)

    def step(self, n: int = 1) -> None:
        """Advance the physics by ``n`` steps of 2 ms."""
        mujoco.mj_step(self.model, self.data, n)

    def step_to(self, t: float) -> None:
        """Advance the physics to time ``t`` (s), rounded to whole steps; a ``t`` in the past does nothing."""
        self.step(max(0, round((t - self.time_s) / PHYSICS_STEP_S)))

    def drive(self, q: Sequence[float], duration_s: float = 0.02) -> None:
        """Move the targets in a straight line to ``q`` over ``duration_s``, stepping the physics."""
        start, goal, steps = self.targets, np.asarray(q, dtype=float), round(duration_s / PHYSICS_STEP_S)
        for k in range(2, steps + 2, 2):
            self.set_targets(start + (goal - start) * min(1.0, k / steps))
            self.step(min(2, steps - k + 2))

    @property
    def time_s(self) -> float:
        """Simulated seconds since the last reset."""
        return float(self.data.time)

    @property
    def q(self) -> np.ndarray:
        """Measured joint positions (6,), rad."""
        return self.data.qpos[: len(JOINTS)].copy()

    @property
    def qd(self) -> np.ndarray:
        """Measured joint velocities (6,), rad/s."""
        return self.data.qvel[: len(JOINTS)].copy()

    @property
    def effort(self) -> np.ndarray:
        """Torques of the servos (6,), N m."""
        return self.data.actuator_force[: len(JOINTS)].copy()

    @property
    def targets(self) -> np.ndarray:
        """The servos' position targets (6,), rad."""
        return self.data.ctrl[: len(JOINTS)].copy()

    def cube_pose(self, colour: str) -> np.ndarray:
        """Return a cube's pose (x, y, z, yaw) in the base frame, m and rad."""
        k = COLOURS.index(colour)
        w, qx, qy, qz = self.data.xquat[self._cubes[k]]
        yaw = np.arctan2(2 * (w * qz + qx * qy), 1 - 2 * (qy * qy + qz * qz))
        return np.array([*self.data.xpos[self._cubes[k]], yaw])

    def cube_heights(self) -> dict[str, float]:
        """How far (m) each cube's centre is above where it lay on the table, by colour."""
        return {c: float(self.data.xpos[b][2] - CUBE_HALF_M) for c, b in zip(COLOURS, self._cubes, strict=True)}

    def outcome(self) -> Outcome:
        """Judge the present state by the scene's instruction."""
        return judge(self.cube_heights(), self.scene.colour)

    def held(self) -> set[str]:
        """Colours of the cubes that both finger pads touch."""
        pads = (self.model.geom("fixed_pad").id, self.model.geom("moving_pad").id)
        cubes = {self.model.geom(f"cube_{colour}").id: colour for colour in COLOURS}
        touched: dict[int, set[str]] = {pad: set() for pad in pads}
        for a, b in self.data.contact.geom[: self.data.ncon]:
            for pad, cube in ((int(a), int(b)), (int(b), int(a))):
                if pad in touched and cube in cubes:
                    touched[pad].add(cubes[cube])
        return touched[pads[0]] & touched[pads[1]]

    def project(self, camera: str, point: np.ndarray) -> tuple[float, float, bool]:
        """Return where ``point`` (3,) m appears (fractions of width and height) and whether the picture has it."""
        k = self.model.camera(camera).id
        x, y, z = self.data.cam_xmat[k].reshape(3, 3).T @ (np.asarray(point) - self.data.cam_xpos[k])
        scale = 0.5 / np.tan(np.radians(self.model.cam_fovy[k]) / 2) / max(-z, 1e-6)
        u, v = 0.5 + x * scale, 0.5 - y * scale
        return float(u), float(v), bool(z < -0.01 and 0 < u < 1 and 0 < v < 1)

    def render(self, camera: str, width: int = 96, height: int = 96) -> np.ndarray:
        """Take a picture: (height, width, 3) uint8 RGB. KeyError for a camera that the scene lacks."""
        key = (width, height)
        if key not in self._renderers:
            renderer = mujoco.Renderer(self.model, height, width)
            for flag in (
                mujoco.mjtRndFlag.mjRND_SHADOW,
                mujoco.mjtRndFlag.mjRND_REFLECTION,
                mujoco.mjtRndFlag.mjRND_SKYBOX,
            ):
                renderer.scene.flags[flag] = 0
            self._renderers[key] = renderer
        renderer = self._renderers[key]
        renderer.update_scene(self.data, camera=self.model.camera(camera).id)
        return renderer.render().copy()

    def close(self) -> None:
        """Free the renderers."""
        while self._renderers:
            self._renderers.popitem()[1].close()
