"""Action rows that are poses of end effectors, made joint positions through inverse kinematics, and back."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from vla_runtime.policy.action_space import ActionSpace
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.bundle_model import EndEffectorModel, PolicyModel
from vla_runtime.policy.chain import Chain, Pose, Tolerance
from vla_runtime.policy.errors import BundleError, UnreachableError


class EndEffectorSpace(ActionSpace):
    """Normalisation and kinematics of a bundle whose rows are poses.

    A row holds, for each end effector in the bundle's order, x y z (m) and three numbers of rotation (or none), and
    then the joints that belong to no end effector (grippers), in the order of ``action.joints``, as positions in rad.

    ee_pose: poses seen from the end effector's base. ee_delta: changes of the observed pose, each row for itself.
    ee_step: changes one after the other, the first one of the observed pose.
    """

    kinematic = True

    def __init__(self, bundle: Bundle):
        super().__init__(bundle.policy)
        policy = bundle.policy
        urdf = bundle.file(policy.action.urdf).read_bytes()
        try:
            self.effectors = [_Effector(model, policy, urdf) for model in policy.action.end_effectors]
        except BundleError as error:
            raise BundleError(f"bundle {bundle.path}: {policy.action.urdf}: {error}") from None
        taken = {joint for model in policy.action.end_effectors for joint in model.joints}
        self._others = [i for i, joint in enumerate(self.joints) if joint not in taken]

    def to_radians(self, rows: np.ndarray, state: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
        """Return (k, n) float64 absolute radians from (k, width) normalised rows.

        ``known`` (d, n): the first rows as they have been committed; they come back unchanged, and the rows after
        them are solved from where they end. Raises UnreachableError, which names the row.
        """
        values = self._values(rows)
        count = 0 if known is None else len(known)
        positions = np.empty((len(values), len(self.joints)))
        column = 0
        for effector in self.effectors:
            part = values[:, column : column + effector.width]
            column += effector.width
            observed = np.asarray(state, np.float64)[effector.in_state]
            near = known[-1, effector.in_action] if count else observed
            poses = effector.poses(part, self.space, effector.chain.pose(observed))
            for i in range(count, len(values)):
                try:
                    near = effector.chain.solve(poses[i], near)
                except UnreachableError as error:
                    raise UnreachableError(f"row {i} of the plan: {error}") from None
                positions[i, effector.in_action] = near
        positions[:, self._others] = values[:, column:]
        if count:
            positions[:count] = known
        return positions

    def from_radians(self, positions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return (k, width) float32 normalised rows from (k, n) absolute radians: the inverse of ``to_radians``."""
        positions = np.asarray(positions, np.float64)
        parts = []
        for effector in self.effectors:
            observed = effector.chain.pose(np.asarray(state, np.float64)[effector.in_state])
            poses = [effector.chain.pose(row) for row in positions[:, effector.in_action]]
            parts.append(effector.rows(poses, self.space, observed))
        return self._normalised(np.concatenate([*parts, positions[:, self._others]], axis=1))


class _Effector:
    """One end effector: its chain, where its joints stand in rows and states, and its columns."""

    def __init__(self, model: EndEffectorModel, policy: PolicyModel, urdf: bytes):
        missing = sorted(set(model.joints) - set(policy.state.joints))
        if missing:
            raise BundleError(f"'{model.frame}' is placed by the joints {missing}, which the state lacks")
        limits = {name: (policy.limits[name].lower, policy.limits[name].upper) for name in policy.limits}
        tolerance = Tolerance(model.position_tolerance_m, model.rotation_tolerance_rad, model.rotation_weight_m)
        self.chain = Chain(urdf, model.frame, model.joints, model.base, limits, tolerance)
        self.in_state = [policy.state.joints.index(joint) for joint in model.joints]
        self.in_action = [policy.action.joints.index(joint) for joint in model.joints]
        self.width = model.width
        self._form, self._by_tool = model.rotation, model.axes == "tool"

    def poses(self, rows: np.ndarray, space: str, observed: Pose) -> list[Pose]:
        """Return the poses that ``rows`` (k, width) mean."""
        made = [Pose(row[:3], self._rotation(row[3:])) for row in rows]
        if space == "ee_pose":
            return made
        found, start = [], observed
        for change in made:
            found.append(self._moved(start, change))
            if space == "ee_step":
                start = found[-1]
        return found if self._form != "none" else [Pose(pose.position, None) for pose in found]

    def rows(self, poses: list[Pose], space: str, observed: Pose) -> np.ndarray:
        """Return the rows (k, width) that mean ``poses``: the inverse of ``poses``."""
        if space == "ee_step":
            poses = [self._change(a, b) for a, b in zip([observed, *poses[:-1]], poses)]
        elif space == "ee_delta":
            poses = [self._change(observed, pose) for pose in poses]
        made = [np.concatenate((pose.position, self._numbers(pose.rotation))) for pose in poses]
        return np.array(made).reshape(len(poses), self.width)

    def _moved(self, start: Pose, change: Pose) -> Pose:
        turn = Rotation.identity() if change.rotation is None else change.rotation
        if self._by_tool:
            return Pose(start.position + start.rotation.apply(change.position), start.rotation * turn)
        return Pose(start.position + change.position, turn * start.rotation)

    def _change(self, start: Pose, end: Pose) -> Pose:
        way, back = end.position - start.position, start.rotation.inv()
        if self._by_tool:
            return Pose(back.apply(way), back * end.rotation)
        return Pose(way, end.rotation * back)

    def _rotation(self, numbers: np.ndarray) -> Rotation | None:
        if self._form == "none":
            return None
        return Rotation.from_rotvec(numbers) if self._form == "rotvec" else Rotation.from_euler("xyz", numbers)

    def _numbers(self, rotation: Rotation) -> np.ndarray:
        if self._form == "none":
            return np.zeros(0)
        return rotation.as_rotvec() if self._form == "rotvec" else rotation.as_euler("xyz")
