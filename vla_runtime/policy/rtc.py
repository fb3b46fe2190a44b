"""Real-time chunking: a chunk that continues what was committed while it was computed. Arrays and callables only.

Three forms. ``guided`` (Black, Galliker, Levine 2025, arXiv 2506.07339): each step of the flow is pulled towards the
committed actions by the vector-Jacobian product of the one-step estimate. ``guided_identity``: the same with the
Jacobian taken for the identity, for engines that cannot differentiate (what LeRobot's processor computes).
``prefix`` (training-time RTC, arXiv 2512.05964): for models trained on clean prefixes; the prefix rows are set, and
their time is clean, before every step.

Flow time tau runs from 0 (noise) to 1 (clean), x += v / steps. For models with the opposite convention (time 1 is
noise): tau = 1 - time, v = -v.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Velocity = Callable[[np.ndarray, float], np.ndarray]
"""v(x, tau): rows (H, w) and flow time to the velocity (H, w)."""

VelocityVjp = Callable[[np.ndarray, float], "tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]"]
"""(x, tau) to v and to the function that maps a cotangent (H, w) to cotangent^T dv/dx (H, w)."""

SCHEDULES = ("exp", "linear", "ones", "zeros")


def soft_mask(length: int, delay: int, end: int, schedule: str = "exp") -> np.ndarray:
    """Return how strongly each row is held to the previous chunk: (length,) in [0, 1].

    1 for rows before ``delay`` (they will have been executed), 0 from ``end`` on (nothing is known), in between by
    ``schedule``: ``linear`` c_i = (end - i) / (end - delay + 1); ``exp`` c_i (e^c_i - 1) / (e - 1); ``ones``;
    ``zeros``.
    The paper's ``end`` is H - s (s: rows executed per chunk); LeRobot's is its execution horizon, at most the length
    of the leftover. A delay beyond ``end`` counts as ``end``. Raises ``ValueError`` on another schedule or a negative
    number.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule '{schedule}' is not one of: {', '.join(SCHEDULES)}")
    if length < 0 or delay < 0 or end < 0:
        raise ValueError(f"length {length}, delay {delay} and end {end} must not be negative")
    end = min(end, length)
    delay = min(delay, end)
    rows = np.arange(length)
    c = np.clip((end - rows) / (end - delay + 1), 0.0, 1.0)
    between = {
        "linear": c,
        "exp": c * np.expm1(c) / (math.e - 1.0),
        "ones": np.ones(length),
        "zeros": np.zeros(length),
    }[schedule]
    return np.where(rows < delay, 1.0, np.where(rows < end, between, 0.0))


def pad_target(leftover: np.ndarray, horizon: int) -> np.ndarray:
    """Return what was planned before (k, w), k >= 1, as the target of a chunk (horizon, w): its last row goes on.

    Only a shape: rows beyond the leftover must have weight 0 (:func:`soft_mask` with ``end`` at most k). Never zeros
    and never a mean, which would be commands that nobody gave; the last row is where the arm will be.
    """
    rows = np.asarray(leftover)
    if rows.ndim != 2 or len(rows) == 0:
        raise ValueError(f"the leftover must have at least one row of actions, got shape {rows.shape}")
    return rows[np.minimum(np.arange(horizon), len(rows) - 1)]


def guidance_weight(tau: float, most: float) -> float:
    """Return min(most, (1 - tau) / (tau r^2)), r^2 = (1 - tau)^2 / (tau^2 + (1 - tau)^2); ``most`` at both ends."""
    if tau <= 0.0 or tau >= 1.0:
        return most
    return min(most, tau / (1.0 - tau) + (1.0 - tau) / tau)


def guided_velocity(
    velocity: VelocityVjp, x: np.ndarray, tau: float, target: np.ndarray, weights: np.ndarray, most: float
) -> np.ndarray:
    """Return the velocity (H, w) pulled towards ``target`` (H, w) through the exact vector-Jacobian product.

    ``weights`` (H,): :func:`soft_mask`; ``most``: the paper's beta (5 on its robots).
    """
    v, pull_back = velocity(x, tau)
    error = (target - (x + (1.0 - tau) * v)) * weights[:, None]
    # The one-step estimate is x + (1 - tau) v(x): its Jacobian has an identity part.
    return v + guidance_weight(tau, most) * (error + (1.0 - tau) * pull_back(error))


def guided_identity_velocity(
    velocity: Velocity, x: np.ndarray, tau: float, target: np.ndarray, weights: np.ndarray, most: float
) -> np.ndarray:
    """Like :func:`guided_velocity` with the Jacobian of the one-step estimate taken for the identity."""
    v = velocity(x, tau)
    error = (target - (x + (1.0 - tau) * v)) * weights[:, None]
    return v + guidance_weight(tau, most) * error


def with_prefix(x: np.ndarray, time: np.ndarray, committed: np.ndarray, clean: float) -> tuple[np.ndarray, np.ndarray]:
    """Return copies of the rows (H, w) and their times (H,) with the committed rows (d, w) set, at time ``clean``.

    To be done before every step, and the rows once more after the last: the model does not keep them.
    """
    x, time = x.copy(), time.copy()
    x[: len(committed)], time[: len(committed)] = committed, clean
    return x, time


def sample(velocity: Velocity, noise: np.ndarray, steps: int) -> np.ndarray:
    """Integrate the flow by Euler from ``noise`` (H, w) in ``steps`` equal steps; raises ``ValueError`` below one."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    x = noise
    for step in range(steps):
        x = x + velocity(x, step / steps) / steps
    return x


def sample_guided(
    velocity: VelocityVjp, noise: np.ndarray, steps: int, target: np.ndarray, weights: np.ndarray, most: float
) -> np.ndarray:
    """Sample with :func:`guided_velocity`: rows (H, w)."""
    return sample(lambda x, tau: guided_velocity(velocity, x, tau, target, weights, most), noise, steps)


def sample_guided_identity(
    velocity: Velocity, noise: np.ndarray, steps: int, target: np.ndarray, weights: np.ndarray, most: float
) -> np.ndarray:
    """Sample with :func:`guided_identity_velocity`: rows (H, w)."""
    return sample(lambda x, tau: guided_identity_velocity(velocity, x, tau, target, weights, most), noise, steps)


def sample_prefix(
    velocity: Callable[[np.ndarray, np.ndarray], np.ndarray], noise: np.ndarray, steps: int, committed: np.ndarray
) -> np.ndarray:
    """Sample with a committed prefix (d, w), d <= H, for a model trained on clean prefixes; its rows stay as given.

    ``velocity``: rows (H, w) and a time per row (H,) to the velocity (H, w). Raises ``ValueError`` where the prefix is
    longer than the chunk.
    """
    if len(committed) > len(noise):
        raise ValueError(f"a prefix of {len(committed)} rows does not fit into a chunk of {len(noise)}")
    time = np.zeros(len(noise))
    x = noise
    for step in range(steps):
        time[:] = step / steps
        rows, times = with_prefix(x, time, committed, 1.0)
        x = rows + velocity(rows, times) / steps
    return with_prefix(x, time, committed, 1.0)[0]
