"""A policy that knows the future of a smooth path, and can be made to fail in every way that a real one does."""

from collections.abc import Callable

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.limits import Limits

# How the policy leads an arm that is elsewhere back to its path: at most so fast, then with this time constant. Faster
# than its own delay allows, and the loop would swing.
RETURN_RAD_S, RETURN_S = 1.0, 0.5

Corruption = Callable[[ActionChunk], ActionChunk]


class SmoothPath:
    """Where a perfect policy would have the arm at every instant: two sines a joint, well inside the limits.

    Discrete joints step between two positions, as grippers do.
    """

    def __init__(self, limits: Limits, rng: np.random.Generator, effort: float = 0.5) -> None:
        n = len(limits)
        lower, upper = np.maximum(limits.lower, -3.0), np.minimum(limits.upper, 3.0)
        self._centre = 0.5 * (lower + upper)
        self._rate = rng.uniform(0.5, 3.0, (2, n))  # rad/s
        self._phase = rng.uniform(0.0, 2.0 * np.pi, (2, n))
        room = 0.3 * (upper - lower)
        by_speed = effort * limits.velocity / self._rate.max(axis=0)
        by_push = effort * limits.acceleration / self._rate.max(axis=0) ** 2
        self._size = np.minimum.reduce([room, by_speed, by_push])
        self._discrete = limits.discrete
        self._every = rng.uniform(1.0, 3.0)  # s between steps of the discrete joints

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Return the positions (m, n) rad at steady times ``t`` (m,)."""
        t = np.asarray(t, dtype=np.float64)[:, None]
        wave = 0.5 * (np.sin(self._rate[0] * t + self._phase[0]) + np.sin(self._rate[1] * t + self._phase[1]))
        step = np.where(np.floor(t / self._every) % 2 == 0, 0.8, -0.8)
        return self._centre + self._size * np.where(self._discrete, step, wave)


class ScriptedPolicy:
    """Answers requests with chunks of a path, after a latency; every attribute below is a fault to turn on.

    Attributes:
        hung: requests are swallowed, heartbeats go on (an inference thread that hangs).
        dead: neither answers nor heartbeats (the process is gone).
        status: what the heartbeat says.
        extra_latency_s: added to every answer.
        frozen_t0: an observation time that no longer moves (a camera that repeats its last picture).
        corrupt: changes every chunk before it leaves.
        offset_rad: how far chunks differ from the path, and so from each other.
    """

    def __init__(
        self, limits: Limits, path: SmoothPath, rng: np.random.Generator, dt: float, horizon: int, latency_s: float
    ) -> None:
        self._limits, self._path, self._rng = limits, path, rng
        self.dt, self.horizon, self.latency_s = dt, horizon, latency_s
        self.hung = self.dead = False
        self.status = "ready"
        self.extra_latency_s = 0.0
        self.frozen_t0: float | None = None
        self.corrupt: Corruption | None = None
        # Chunks of a real policy do not agree with each other; those of a perfect one would.
        self.offset_rad = float(rng.choice([0.0, 0.02]))

    def latency(self) -> float:
        """Return how long the next answer takes, seconds."""
        return self.latency_s * float(self._rng.uniform(0.8, 1.3)) + self.extra_latency_s

    def observe(self, now: float) -> float:
        """Return the steady time of the observation that an answer to a request at ``now`` uses."""
        return now if self.frozen_t0 is None else self.frozen_t0

    def chunk(self, t0: float, seen: np.ndarray, request_id: str) -> ActionChunk:
        """Return the chunk for an observation at ``t0`` with the arm seen at ``seen`` (n,) rad.

        It leads from there back to the path, as a policy that looks at the arm would. ``received`` is set by whoever
        receives it.
        """
        ahead = self.dt * np.arange(self.horizon)
        positions = self._path(t0 + ahead)
        away = seen - positions[0]
        left = np.sign(away) * _remaining(np.abs(away), ahead[:, None])
        offset = self._rng.uniform(-self.offset_rad, self.offset_rad, positions.shape[1])
        positions = positions + np.where(self._limits.discrete, 0.0, left + offset)
        chunk = ActionChunk(t0, self.dt, self._limits.joint_names, positions, request_id, t0)
        return chunk if self.corrupt is None else self.corrupt(chunk)


def _remaining(away: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Return what is left of distances ``away`` (n,) after times ``ahead`` (H, 1): (H, n)."""
    slow = RETURN_RAD_S * RETURN_S
    straight = np.maximum(away - slow, 0.0) / RETURN_RAD_S
    near = np.minimum(away, slow) * np.exp(-np.maximum(ahead - straight, 0.0) / RETURN_S)
    return near + np.maximum(straight - ahead, 0.0) * RETURN_RAD_S
