"""Between the model's normalised rows and absolute joint positions in radians."""

import numpy as np

from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.errors import BundleError


class ActionSpace:
    """Normalisation and action space of one bundle.

    joint_position: rows are absolute positions. joint_delta: rows are offsets from the observation's state.
    joint_velocity: rows are velocities (rad/s), integrated from the observation's state with the policy's step:
    the row i holds during step i, so position i is the state plus the sum of the rows before it.
    """

    kinematic = False  # whether ``to_radians`` solves for joints, which takes its time

    def __init__(self, policy: PolicyModel):
        self.space = policy.action.space
        self.joints = tuple(policy.action.joints)
        self.horizon = policy.horizon
        self.width = policy.action.width
        self._mean = np.asarray(policy.action.mean)
        self._std = np.asarray(policy.action.std)
        self._dt = policy.dt_s
        self._state_mean = np.asarray(policy.state.mean)
        self._state_std = np.asarray(policy.state.std)
        self._state_width = policy.state.pad_to or len(policy.state.joints)
        if self.space in ("joint_delta", "joint_velocity"):
            missing = sorted(set(self.joints) - set(policy.state.joints))
            if missing:
                raise BundleError(f"action.space is {self.space}, but the state lacks the joints {missing}")
            self._from_state = [policy.state.joints.index(joint) for joint in self.joints]

    def state_row(self, state: np.ndarray) -> np.ndarray:
        """Return (1, state width) float32: the state normalised and zero-padded."""
        row = np.zeros((1, self._state_width), np.float32)
        row[0, : state.size] = (state - self._state_mean) / self._state_std
        return row

    def to_radians(self, rows: np.ndarray, state: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
        """Return (k, n) float64 absolute radians from (k, width) normalised rows.

        ``known`` (d, n): the first rows in radians as they have been committed; they come back bit-equal.
        """
        positions = self._values(rows)
        if self.space != "joint_position":
            base = np.asarray(state, np.float64)[self._from_state]
            if self.space == "joint_velocity":
                positions = self._dt * (np.cumsum(positions, axis=0) - positions)
            positions = base + positions
        if known is not None:
            positions[: len(known)] = known
        return positions

    def from_radians(self, positions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return (k, width) float32 normalised rows from (k, n) absolute radians: the inverse of ``to_radians``."""
        values = np.asarray(positions, np.float64)
        if self.space != "joint_position":
            base = np.asarray(state, np.float64)[self._from_state]
            if self.space == "joint_delta":
                values = values - base
            else:
                steps = np.diff(values, axis=0) / self._dt
                # A row of velocities reaches the next position; the last one is taken to go on.
                values = np.concatenate([steps, steps[-1:]]) if len(steps) else np.zeros_like(values)
        return self._normalised(values)

    def _values(self, rows: np.ndarray) -> np.ndarray:
        """Return (k, values) float64 in the space's units from (k, width) normalised rows."""
        return rows[:, : len(self._mean)].astype(np.float64) * self._std + self._mean

    def _normalised(self, values: np.ndarray) -> np.ndarray:
        """Return (k, width) float32 rows, zero-padded, from (k, values)."""
        rows = np.zeros((len(values), self.width), np.float32)
        rows[:, : len(self._mean)] = (values - self._mean) / self._std
        return rows
