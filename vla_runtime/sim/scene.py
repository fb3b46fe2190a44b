"""The demo scene: an SO-101-like arm, a table, three coloured cubes, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import mujoco
import numpy as np

from vla_runtime.sim.task import COLOURS, colour_of, instruction_for

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
CAMERAS = ("front", "wrist")
CUBE_HALF_M = 0.014
GRIPPER_OPEN, GRIPPER_CLOSED = 0.95, 0.12
PAN_AXIS_X_M = 0.0388353
# Where cubes may lie, polar about the shoulder's axis: what the hand reaches when it points straight down.
REACH_M = (0.16, 0.245)
BEARING_RAD = (-0.75, 0.75)
SEPARATION_M = 0.075  # the open jaws of one grasp must not land on a neighbour
YAW_RAD = 0.4


@dataclass(frozen=True)
class Scene:
    """One drawn scene. ``cubes``: colour -> (x m, y m, yaw rad) in the robot's base frame."""

    seed: int
    instruction: str
    cubes: dict[str, tuple[float, float, float]]

    @property
    def colour(self) -> str:
        """The colour that the instruction names."""
        return colour_of(self.instruction)


def build_model() -> mujoco.MjModel:
    """Compile the scene's MJCF (primitives only)."""
    text = files("vla_runtime.sim").joinpath("assets/cubes.xml").read_text(encoding="utf-8")
    return mujoco.MjModel.from_xml_string(text)


def draw_scene(seed: int, instruction: str | None = None) -> Scene:
    """Draw cube poses and, unless given, an instruction. The cubes do not depend on the instruction."""
    rng = np.random.default_rng([seed, 101])
    placed: list[tuple[float, float, float]] = []
    for attempt in range(1, 10_000):
        if len(placed) == len(COLOURS):
            break
        if attempt % 50 == 0:  # two cubes can leave no room for the third
            placed.clear()
        radius = np.sqrt(rng.uniform(REACH_M[0] ** 2, REACH_M[1] ** 2))
        bearing = rng.uniform(*BEARING_RAD)
        x, y = PAN_AXIS_X_M + radius * np.cos(bearing), radius * np.sin(bearing)
        if all(np.hypot(x - a, y - b) >= SEPARATION_M for a, b, _ in placed):
            placed.append((float(x), float(y), float(bearing + rng.uniform(-YAW_RAD, YAW_RAD))))
    order = rng.permutation(len(COLOURS))
    cubes = {COLOURS[int(k)]: pose for k, pose in zip(order, placed, strict=True)}
    if instruction is None:
        instruction = instruction_for(COLOURS[int(rng.integers(len(COLOURS)))], rng)
    return Scene(seed=seed, instruction=instruction, cubes=cubes)
