"""Does the arm go where it is sent? Commanded against measured, joint by joint.

Discrete joints (grippers) are left out: a gripper that holds something is meant to be elsewhere than commanded, and
would let go if the command gave in.
"""

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.errors import brief


@dataclass(frozen=True)
class Apart:
    """The joint that is furthest from its command: its name, commanded and measured, rad."""

    joint: str
    commanded: float
    measured: float

    def __str__(self) -> str:
        return f"{self.joint} commanded {brief(self.commanded)} rad, measured {brief(self.measured)} rad"


class Deviation:
    """Notices an error that stays above a tolerance for a while; forgets it as soon as it is below."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since: float | None = None

    def reset(self) -> None:
        """Begin anew."""
        self._since = None

    def check(
        self, now: float, commanded: np.ndarray, measured: np.ndarray, tolerance_rad: float, for_s: float
    ) -> Apart | None:
        """Return the worst joint once it has been above ``tolerance_rad`` (0: never) for ``for_s`` seconds.

        ``commanded`` and ``measured``: (n,) rad, both at the same instant.
        """
        error = np.where(self._limits.discrete, 0.0, np.abs(measured - commanded))
        joint = int(np.argmax(error))
        if tolerance_rad <= 0.0 or error[joint] <= tolerance_rad:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < for_s:
            return None
        return Apart(self._limits.joint_names[joint], float(commanded[joint]), float(measured[joint]))
