"""Closed-form kinematics of the demo arm: the hand in the vertical plane that the shoulder pan turns to."""

from __future__ import annotations

import numpy as np

# Link offsets of the SO-101 in metres (joints at zero: upper arm up, forearm and hand forward).
_PAN_X, _LIFT_X, _LIFT_Z = 0.0388353, 0.0304, 0.1166
_UPPER = np.array([0.028, 0.11257])
_FORE = np.array([0.1349, 0.0052])
_HAND = 0.0611 + 0.098
_L1, _L2 = float(np.hypot(*_UPPER)), float(np.hypot(*_FORE))
_A1, _A2 = float(np.arctan2(*_UPPER)), float(np.arctan2(*_FORE))  # angles from the vertical at zero


class UnreachableError(ValueError):
    """No joint positions bring the hand there."""


def inverse(x: float, y: float, z: float, yaw: float, pitch: float = np.pi / 2) -> np.ndarray:
    """Solve for the five arm joints (rad) that put the tool point at (x, y, z), base frame, m.

    ``pitch`` is the hand's angle below the horizontal (pi/2: straight down); ``yaw`` turns the jaws' closing direction
    about the vertical, 0 = along +x. Elbow up. Raises UnreachableError.
    """
    pan = np.arctan2(y, x - _PAN_X)
    r = np.hypot(x - _PAN_X, y) - _LIFT_X - _HAND * np.cos(pitch)
    h = z - _LIFT_Z + _HAND * np.sin(pitch)
    distance = np.hypot(r, h)
    if not abs(_L1 - _L2) < distance < _L1 + _L2:
        raise UnreachableError(f"({x:.3f}, {y:.3f}, {z:.3f}) m is out of the arm's reach")
    towards = np.arctan2(r, h)  # from the vertical
    inner = np.arccos(np.clip((_L1**2 + distance**2 - _L2**2) / (2 * _L1 * distance), -1, 1))
    upper = towards - inner
    fore = np.arctan2(r - _L1 * np.sin(upper), h - _L1 * np.cos(upper))
    lift = upper - _A1
    elbow = (fore - _A2) - lift
    roll = np.arctan2(np.sin(yaw - pan), np.cos(yaw - pan))
    return np.array([-pan, lift, elbow, pitch - lift - elbow, -roll])


def forward(q: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return the tool point (3,) m, the hand's pitch and the jaws' yaw (rad) for arm joints ``q`` (5 or more, rad)."""
    pan, lift, elbow, wrist, roll = -q[0], q[1], q[2], q[3], -q[4]
    upper, fore, pitch = lift + _A1, lift + elbow + _A2, lift + elbow + wrist
    r = _LIFT_X + _L1 * np.sin(upper) + _L2 * np.sin(fore) + _HAND * np.cos(pitch)
    z = _LIFT_Z + _L1 * np.cos(upper) + _L2 * np.cos(fore) - _HAND * np.sin(pitch)
    return np.array([_PAN_X + r * np.cos(pan), r * np.sin(pan), z]), float(pitch), float(pan + roll)


HOME = np.append(inverse(0.225, 0.0, 0.12, 0.0, pitch=1.2), 0.6)
HOME.flags.writeable = False
