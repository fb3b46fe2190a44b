"""Plans that are relative to the observation, made absolute; and poses re-framed as the robot moves on."""

from __future__ import annotations

import numpy as np

from vla_runtime.control.finite import all_finite


def joints_from_deltas(deltas: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Return absolute positions (H, n) from offsets (H, n) to the observation's ``state`` (n,), each for itself."""
    deltas, state = _table(deltas, "deltas"), _vector(state, "state")
    _same_width(deltas, state)
    return state + deltas


def joints_from_velocities(velocities: np.ndarray, state: np.ndarray, dt: float) -> np.ndarray:
    """Return positions (H, n): row i of ``velocities`` (H, n) holds during step i, from the observation's ``state``.

    So position i is the state plus the sum of the rows before it, times ``dt`` s.
    """
    velocities, state = _table(velocities, "velocities"), _vector(state, "state")
    _same_width(velocities, state)
    if not (np.isfinite(dt) and dt > 0.0):
        raise ValueError(f"dt must be a positive time in seconds, got {dt}")
    return state + dt * (np.cumsum(velocities, axis=0) - velocities)


def waypoints_to_world(waypoints: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return SE(2) waypoints (H, 2) or (H, 3) (x, y m, heading rad) from the frame of ``pose`` (x, y, heading)."""
    waypoints, pose = _table(waypoints, "waypoints"), _pose(pose)
    moved = waypoints.copy()
    moved[:, :2] = waypoints[:, :2] @ _rotation(pose[2]).T + pose[:2]
    return _with_heading(moved, waypoints, pose[2])


def waypoints_from_world(waypoints: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Return SE(2) waypoints (H, 2) or (H, 3) given in the world as seen from ``pose`` (x, y m, heading rad)."""
    waypoints, pose = _table(waypoints, "waypoints"), _pose(pose)
    moved = waypoints.copy()
    moved[:, :2] = (waypoints[:, :2] - pose[:2]) @ _rotation(pose[2])
    return _with_heading(moved, waypoints, -pose[2])


def reframe_waypoints(waypoints: np.ndarray, pose_then: np.ndarray, pose_now: np.ndarray) -> np.ndarray:
    """Return waypoints that were planned in the robot's frame at ``pose_then`` in its frame at ``pose_now``.

    ``waypoints`` (H, 2) x, y or (H, 3) x, y, heading; poses (3,). What lies still in the world stays where it is
    although the robot moved while the plan was computed.
    """
    return waypoints_from_world(waypoints_to_world(waypoints, pose_then), pose_now)


def wrap_angle(angle: np.ndarray) -> np.ndarray:
    """Return angles in rad in (-pi, pi]."""
    return np.pi - np.mod(np.pi - np.asarray(angle, dtype=np.float64), 2.0 * np.pi)


def _with_heading(moved: np.ndarray, waypoints: np.ndarray, turn: float) -> np.ndarray:
    if waypoints.shape[1] not in (2, 3):
        raise ValueError(f"waypoints must have 2 (x, y) or 3 (x, y, heading) columns, got {waypoints.shape[1]}")
    if waypoints.shape[1] == 3:
        moved[:, 2] = wrap_angle(waypoints[:, 2] + turn)
    return moved


def _rotation(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def _pose(pose: np.ndarray) -> np.ndarray:
    pose = _vector(pose, "pose")
    if len(pose) != 3:
        raise ValueError(f"a pose has x, y and heading, got {len(pose)} values")
    return pose


def _table(values: np.ndarray, name: str) -> np.ndarray:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not all_finite(table):
        raise ValueError(f"{name} must be a table of finite numbers, got shape {table.shape}")
    return table


def _vector(values: np.ndarray, name: str) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not all_finite(vector):
        raise ValueError(f"{name} must be a row of finite numbers, got shape {vector.shape}")
    return vector


def _same_width(table: np.ndarray, state: np.ndarray) -> None:
    if table.shape[1] != len(state):
        raise ValueError(f"the plan has {table.shape[1]} joints, the state {len(state)}")
