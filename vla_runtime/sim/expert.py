"""The scripted expert: from any state of the arm, the smooth commands that end with the named cube in the air.

It knows the cubes' true poses. Each plan is a row of legs; each leg is a jerk-limited motion (Ruckig) from where the
last one ended, at limits well below the robot's (``config/robots/so101_sim.yaml``), so that demonstrations are smooth.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np
from ruckig import InputParameter, Result, Ruckig, RuckigError, Trajectory

from vla_runtime.sim.kinematics import UnreachableError, forward, inverse
from vla_runtime.sim.scene import GRIPPER_CLOSED, GRIPPER_OPEN, YAW_RAD

TICK_S = 0.02
VELOCITY = np.array([1.4, 1.4, 1.4, 1.6, 1.6, 2.2])
ACCELERATION = np.array([6.0, 6.0, 6.0, 8.0, 8.0, 12.0])
JERK = np.array([70.0, 70.0, 70.0, 90.0, 90.0, 150.0])

GRASP_Z, HOVER_Z, CLEAR_Z, LIFT_Z = 0.018, 0.072, 0.060, 0.125
GRASP_PITCH, HOVER_PITCH, LIFT_PITCH = np.pi / 2, 1.40, 1.20
HOLDING = 0.30  # a gripper angle above this with both pads touching: there is a cube between them


@dataclass
class Motion:
    """The commanded state: position, velocity, acceleration, each (6,) in rad, rad/s, rad/s^2."""

    q: np.ndarray
    v: np.ndarray = field(default_factory=lambda: np.zeros(6))
    a: np.ndarray = field(default_factory=lambda: np.zeros(6))


def jaw_yaw(x: float, y: float, yaw: float, pan_x: float = 0.0388353) -> float:
    """Return the jaws' yaw for a cube: along its faces, near the arm's bearing, at most YAW_RAD off it."""
    bearing = float(np.arctan2(y, x - pan_x))
    quarter = np.pi / 2
    off = (yaw - bearing + quarter / 2) % quarter - quarter / 2
    return bearing + float(np.clip(off, -YAW_RAD, YAW_RAD))


class Expert:
    """Plans for one cube. Not for use across threads."""

    def __init__(self, tick_s: float = TICK_S):
        self.tick_s = tick_s
        self._otg = Ruckig(6)

    def plan(
        self, start: Motion, measured: np.ndarray, cube: np.ndarray, held: bool, other_held: bool = False
    ) -> Motion:
        """Return the motion to come, each part (T, 6), one row per tick; row 0 holds one tick after ``start``.

        ``measured`` (6,): measured joints; ``cube``: x, y, z, yaw of the one to lift; ``held``: both pads touch it;
        ``other_held``: they touch another one. Raises UnreachableError when the cube has been pushed out of reach.
        """
        rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        motion = start
        for goal, pass_by in self._goals(start, measured, cube, held, other_held):
            motion = self.leg(motion, goal, pass_by, rows)
        q, v, a = (np.array(part) for part in zip(*rows, strict=True))
        return Motion(q, v, a)

    def _goals(
        self, start: Motion, measured: np.ndarray, cube: np.ndarray, held: bool, other_held: bool
    ) -> list[tuple[np.ndarray, float]]:
        """List (joint goal (6,), how near is near enough to turn to the next, rad; 0 = come to rest there)."""
        x, y, _, cube_yaw = (float(v) for v in cube)
        tool, _, jaws = forward(start.q)
        gripper = float(measured[5])
        if held and gripper > HOLDING:
            return self._lift(start.q, float(np.hypot(x - 0.0388353, y)))
        yaw = jaw_yaw(x, y, cube_yaw)
        grasp = np.append(inverse(x, y, GRASP_Z, yaw, GRASP_PITCH), GRIPPER_OPEN)
        hover = np.append(inverse(x, y, HOVER_Z, yaw, HOVER_PITCH), GRIPPER_OPEN)
        shut = grasp.copy()
        shut[5] = GRIPPER_CLOSED
        lift = self._lift(shut, float(np.hypot(x - 0.0388353, y)))

        error = tool[:2] - (x, y)
        along = error @ (np.cos(jaws), np.sin(jaws))
        across = error @ (-np.sin(jaws), np.cos(jaws))
        turn = abs((jaws - yaw + np.pi) % (2 * np.pi) - np.pi)
        height = tool[2] - GRASP_Z
        around = abs(across) < 0.009 and -0.013 < along < 0.011 and turn < 0.3
        if around and height < 0.010 and gripper > HOLDING + 0.08:
            stay = start.q.copy()
            stay[5] = GRIPPER_CLOSED
            return [(stay, 0.0), *self._lift(stay, float(np.hypot(x - 0.0388353, y)))]
        wide = start.q[5] > 0.8 and gripper > 0.75
        funnel = 0.007 + 0.18 * max(0.0, height)
        if wide and height < 0.075 and np.hypot(along, across) < funnel and turn < 0.25:
            return [(grasp, 0.0), (shut, 0.0), *lift]
        if other_held and gripper > HOLDING:
            let_go = start.q.copy()
            let_go[5] = GRIPPER_OPEN
            up = let_go.copy()
            up[:5] = self._above(tool, jaws)
            return [(let_go, 0.0), (up, 0.10), (hover, 0.05), (grasp, 0.0), (shut, 0.0), *lift]
        if tool[2] < CLEAR_Z and np.hypot(*error) > 0.012:
            # Straight up first: the jaws may be beside a cube.
            up = start.q.copy()
            up[:5] = self._above(tool, jaws)
            up[5] = GRIPPER_OPEN
            return [(up, 0.10), (hover, 0.05), (grasp, 0.0), (shut, 0.0), *lift]
        return [(hover, 0.05), (grasp, 0.0), (shut, 0.0), *lift]

    @staticmethod
    def _above(tool: np.ndarray, jaws: float) -> np.ndarray:
        for shrink in (1.0, 0.97, 0.94, 0.9, 0.85):
            try:
                return inverse(0.0388353 + (tool[0] - 0.0388353) * shrink, tool[1] * shrink, HOVER_Z, jaws, HOVER_PITCH)
            except UnreachableError:
                continue
        raise UnreachableError(f"the hand at {tool} m cannot be raised")

    @staticmethod
    def _lift(q: np.ndarray, radius: float) -> list[tuple[np.ndarray, float]]:
        """Raise the hand over where it is, the jaws shut."""
        bearing, roll = -q[0], q[4]
        radius = float(np.clip(radius, 0.16, 0.25))
        at = 0.0388353 + radius * np.cos(bearing), radius * np.sin(bearing)
        top = np.append(inverse(*at, LIFT_Z, bearing - roll, LIFT_PITCH), GRIPPER_CLOSED)
        return [(top, 0.0)]

    def leg(self, start: Motion, goal: np.ndarray, pass_by: float, rows: list) -> Motion:
        """Append one jerk-limited leg to ``rows``, a (q, v, a) per tick, and return the state at its last tick."""
        # Rounding leaves distances of 1e-16 rad, in which Ruckig fails to synchronise the joints.
        q, v, a = start.q, *(np.where(np.abs(part) < 1e-7, 0.0, part) for part in (start.v, start.a))
        goal = np.where(np.abs(goal - q) < 1e-6, q, goal)
        if not v.any() and not a.any() and (goal == q).all():
            rows.append((q, v, a))
            return Motion(q, v, a)
        trajectory = self._between(q, v, a, goal)
        ticks = max(1, int(np.ceil(trajectory.duration / self.tick_s - 1e-9)))
        for k in range(1, ticks + 1):
            q, v, a = (np.array(part) for part in trajectory.at_time(min(k * self.tick_s, trajectory.duration)))
            rows.append((q, v, a))
            if pass_by and np.max(np.abs(q[:5] - goal[:5])) < pass_by:
                break
        return Motion(q, v, a)

    def _between(self, q: np.ndarray, v: np.ndarray, a: np.ndarray, goal: np.ndarray) -> Trajectory:
        """Plan to rest at ``goal``. On some starts at a limit Ruckig fails to synchronise: a little slack frees it."""
        for slack in (1.0, 1.02, 1.1, 1.3):
            inp = InputParameter(6)
            inp.current_position, inp.current_velocity, inp.current_acceleration = q, v, a
            inp.target_position = goal
            inp.max_velocity = np.maximum(VELOCITY, np.abs(v) * 1.01) * slack
            inp.max_acceleration = np.maximum(ACCELERATION, np.abs(a) * 1.01) * slack
            inp.max_jerk = JERK * slack
            trajectory = Trajectory(6)
            with contextlib.suppress(RuckigError):
                if self._otg.calculate(inp, trajectory) in (Result.Working, Result.Finished):
                    return trajectory
        raise UnreachableError(f"no jerk-limited motion from {q} at {v} to {goal}")
