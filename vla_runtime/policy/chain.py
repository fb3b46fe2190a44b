"""Where a frame of a URDF is for given joint angles, and which angles bring it to a pose.

Pinocchio computes the frame and its Jacobian; the solver is damped least squares whose damping follows the error
(Sugihara's form of Levenberg-Marquardt), so that it neither swings at a singularity nor far from the goal.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from vla_runtime.errors import brief
from vla_runtime.policy.errors import BundleError, UnreachableError

ITERATIONS = 60  # neighbouring rows need three; the rest is for poses at the edge of what can be reached
LEAST_DAMPING = 1e-7  # m^2: below it a step is Newton's
SOLVED = 1e-7  # m, and rad times the rotation's weight: no further step is worth its time
LONGEST_STEP = 0.5  # rad (or m): the Jacobian is of here, not of there
ANY = 1e6  # the limit of a joint that turns for ever


@dataclass(frozen=True)
class Pose:
    """A frame seen from the base: position (3,) m, rotation (None where only the position counts)."""

    position: np.ndarray
    rotation: Rotation | None


@dataclass(frozen=True)
class Tolerance:
    """How far from the wanted pose an answer may be: m, rad; and what a radian weighs against a metre (m)."""

    position_m: float = 0.002
    rotation_rad: float = 0.02
    rotation_weight_m: float = 0.1


class Chain:
    """The joints between two frames of a URDF.

    Args:
        urdf: the robot's description (XML). Only its joints are read, never a mesh.
        frame: the link or joint whose pose is meant.
        base: the link that poses are seen from; None: the root.
        joints: (n) names of the joints that move ``frame`` against ``base``, in the order of the angles below.
        limits: by joint (lower, upper) in rad or m, where they are narrower than the URDF's.
        tolerance: when a pose counts as reached.

    Raises BundleError for a URDF, a frame or joints that do not belong together, and where Pinocchio is missing.
    """

    def __init__(
        self,
        urdf: bytes,
        frame: str,
        joints: Sequence[str],
        base: str | None = None,
        limits: dict[str, tuple[float, float]] | None = None,
        tolerance: Tolerance | None = None,
    ):
        self.frame, self.joints = frame, tuple(joints)
        self.tolerance = tolerance or Tolerance()
        self._pin, self._model = _build(urdf)
        self._data = self._model.createData()
        self._neutral = self._pin.neutral(self._model)
        self._frame, self._base = self._index(frame), None if base is None else self._index(base)
        self._check_joints(base or "the root")
        identities = [self._model.joints[self._model.getJointId(name)] for name in self.joints]
        self._at = [joint.idx_v for joint in identities]  # idx_q is the same: every joint has one angle
        self.lower = self._model.lowerPositionLimit[self._at].copy()
        self.upper = self._model.upperPositionLimit[self._at].copy()
        for i, name in enumerate(self.joints):
            if limits and name in limits:
                self.lower[i], self.upper[i] = max(self.lower[i], limits[name][0]), min(self.upper[i], limits[name][1])
            if self.lower[i] >= self.upper[i]:
                raise BundleError(f"joint '{name}': the URDF's limits and the bundle's leave it no room")

    def pose(self, angles: np.ndarray) -> Pose:
        """Return the frame's pose for ``angles`` (n,) rad."""
        self._place(angles)
        rotation, position = self._seen()
        return Pose(position, Rotation.from_matrix(rotation))

    def solve(self, wanted: Pose, near: np.ndarray) -> np.ndarray:
        """Return angles (n,) rad within the limits that bring the frame to ``wanted``, found from ``near`` (n,).

        The answer is the one that belongs to ``near``: the arm does not change its elbow. Raises UnreachableError,
        with what is missing, where the pose cannot be reached from there within the tolerance.
        """
        angles = np.clip(near, self.lower, self.upper)
        weight = self.tolerance.rotation_weight_m
        for _ in range(ITERATIONS):
            error, jacobian = self._error(angles, wanted, weight)
            off = error @ error
            if off <= SOLVED**2:
                return angles
            slope = jacobian.T @ error
            # A joint at its limit that would have to leave it stays there, and the others do without it.
            free = ~((angles <= self.lower) & (slope < 0.0) | (angles >= self.upper) & (slope > 0.0))
            if not free.any():
                break
            moving = jacobian[:, free]
            damped = moving.T @ moving + (0.5 * off + LEAST_DAMPING) * np.eye(moving.shape[1])
            step = np.linalg.solve(damped, slope[free])
            step *= min(1.0, LONGEST_STEP / max(np.abs(step).max(), 1e-12))
            before, angles = angles, angles.copy()
            angles[free] = np.clip(angles[free] + step, self.lower[free], self.upper[free])
            if np.abs(angles - before).max() < 1e-10:
                break
        self._require(angles, wanted)
        return angles

    def _require(self, angles: np.ndarray, wanted: Pose) -> None:
        error, _ = self._error(angles, wanted, 1.0)
        metres, radians = np.linalg.norm(error[:3]), np.linalg.norm(error[3:])
        if metres <= self.tolerance.position_m and radians <= self.tolerance.rotation_rad:
            return
        held = [name for name, q, low, high in zip(self.joints, angles, self.lower, self.upper) if q in (low, high)]
        raise UnreachableError(
            f"'{self.frame}' cannot reach {np.round(wanted.position, 4).tolist()} m from where it is: "
            f"{brief(metres)} m and {brief(radians)} rad are missing (allowed {self.tolerance.position_m:g} m and "
            f"{self.tolerance.rotation_rad:g} rad)" + (f"; at their limits: {', '.join(held)}" if held else "")
        )

    def _error(self, angles: np.ndarray, wanted: Pose, weight: float) -> tuple[np.ndarray, np.ndarray]:
        """Return what is missing (3 or 6,) in the base's axes, and how it changes with the angles (3 or 6, n)."""
        self._place(angles)
        rotation, position = self._seen()
        pin = self._pin
        world = pin.computeFrameJacobian(
            self._model, self._data, self._full, self._frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        )[:, self._at]
        if self._base is not None:
            turn = self._data.oMf[self._base].rotation.T
            world = np.concatenate((turn @ world[:3], turn @ world[3:]))
        missing = wanted.position - position
        if wanted.rotation is None:
            return missing, world[:3]
        turned = pin.log3(wanted.rotation.as_matrix() @ rotation.T)
        return np.concatenate((missing, weight * turned)), np.concatenate((world[:3], weight * world[3:]))

    def _place(self, angles: np.ndarray) -> None:
        self._full = self._neutral.copy()
        self._full[self._at] = angles
        self._pin.framesForwardKinematics(self._model, self._data, self._full)

    def _seen(self) -> tuple[np.ndarray, np.ndarray]:
        placement = self._data.oMf[self._frame]
        if self._base is not None:
            placement = self._data.oMf[self._base].actInv(placement)
        return placement.rotation, placement.translation

    def _index(self, name: str) -> int:
        if not self._model.existFrame(name):
            known = sorted({frame.name for frame in self._model.frames} - {"universe"})
            raise BundleError(f"the URDF has no link '{name}'; there are: {', '.join(known)}")
        return self._model.getFrameId(name)

    def _check_joints(self, base: str) -> None:
        def above(frame: int) -> set[int]:
            return set(self._model.supports[self._model.frames[frame].parentJoint]) - {0}

        moving = above(self._frame) ^ (set() if self._base is None else above(self._base))
        names = {self._model.names[joint] for joint in moving}
        if names != set(self.joints):
            order = [name for name in self._model.names if name in names]
            raise BundleError(
                f"'{self.frame}' is moved against {base} by the joints {order}; the bundle names {list(self.joints)}"
            )


def _build(urdf: bytes) -> tuple[Any, Any]:
    """Return the module Pinocchio and its model of the joints of ``urdf``."""
    try:
        import pinocchio
    except ImportError:
        raise BundleError(
            "the bundle's actions are poses, and turning them into joint angles needs Pinocchio: "
            "pip install 'vla_runtime[kinematics]'"
        ) from None
    try:
        robot = ElementTree.fromstring(urdf)
        if robot.tag != "robot":
            raise ValueError(f"its first element is <{robot.tag}>, not <robot>")
        for link in robot.iter("link"):
            for child in [child for child in link if child.tag in ("visual", "collision")]:
                link.remove(child)
        for joint in robot.iter("joint"):
            if joint.get("type") == "continuous":  # one angle, not a point on a circle
                joint.set("type", "revolute")
                limit = joint.find("limit")
                limit = ElementTree.SubElement(joint, "limit") if limit is None else limit
                for key, value in (("lower", -ANY), ("upper", ANY)):
                    limit.set(key, str(value))
                for key in ("effort", "velocity"):
                    limit.set(key, limit.get(key, "1"))
        model = pinocchio.buildModelFromXML(ElementTree.tostring(robot, encoding="unicode"))
    except (ElementTree.ParseError, ValueError, RuntimeError) as error:
        raise BundleError(f"the URDF cannot be read: {error}") from None
    if model.nq != model.nv:
        raise BundleError("the URDF has a floating or planar joint; give the part from the robot's base on")
    return pinocchio, model
