"""The rules by which an answer is refused, whole: nothing of a refused plan is executed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.chunk import ActionChunk, columns_by_name, elapsed_steps
from vla_runtime.control.finite import all_finite
from vla_runtime.control.limits import Limits
from vla_runtime.control.schedule import Outstanding
from vla_runtime.errors import brief

REASONS = {
    "old_request": "answers a request that is not the one in flight (older, given up, or answered already)",
    "shape": "not a table of waypoints by joints, or fewer than two waypoints",
    "step": "the policy's step is not a positive time",
    "width": "the number of columns differs from the number of joint names",
    "joints": "a joint is unknown, missing or named twice",
    "not_finite": "a value is not a finite number",
    "future": "the observation's time lies in the future",
    "old_observation": "the observation is older than allowed",
    "not_newer": "the observation is not newer than that of the running plan",
    "elapsed": "every waypoint is in the past",
    "limits": "a waypoint is outside a joint's position limits",
    "speed": "two waypoints ask for far more than a joint's velocity limit",
    "jump": "the plan is too far from the command where it would take over",
}
"""Every reason with its meaning."""

_DEGREES_HINT = 6.0


@dataclass(frozen=True)
class Refusal:
    """Why a plan was refused: ``reason`` is a key of :data:`REASONS`, ``detail`` names what, the value, the limit."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True)
class Rules:
    """Thresholds of acceptance; see the executor's parameters of the same names."""

    max_plan_age_s: float
    max_observation_lag_s: float
    future_tolerance_s: float
    position_tolerance: float
    max_speed_ratio: float
    max_jump: float


def accept(
    now: float,
    chunk: ActionChunk,
    asked: Outstanding | None,
    running_t0: float | None,
    command: np.ndarray | None,
    rules: Rules,
    limits: Limits,
) -> np.ndarray | Refusal:
    """Return the plan's positions (H, n) in the order of ``limits.joint_names``, inside the limits; or the refusal.

    ``asked``: the request in flight if this chunk answers it, else None; ``running_t0``: observation time of the
    running plan; ``command`` (n,): the command at ``now``, None where there is none yet. Values beyond a position limit
    by up to ``position_tolerance`` are set onto it.
    """
    if asked is None:
        return Refusal("old_request", f"'{chunk.request_id}' is not the request in flight")
    refusal = _form(chunk)
    if refusal:
        return refusal
    try:
        columns = columns_by_name(chunk.joint_names, limits.joint_names)
    except ValueError as error:
        return Refusal("joints", str(error))
    positions = np.asarray(chunk.positions, dtype=np.float64)[:, columns]
    refusal = (
        _not_finite(positions, limits)
        or _time(now, chunk, asked, running_t0, rules)
        or _limits(positions, rules, limits)
        or _speed(positions, chunk.dt, rules, limits)
        or _jump(now, chunk, positions, command, rules, limits)
    )
    return refusal or np.clip(positions, limits.lower, limits.upper)


def _form(chunk: ActionChunk) -> Refusal | None:
    positions = chunk.positions
    if not isinstance(positions, np.ndarray) or positions.ndim != 2 or positions.dtype.kind not in "fiu":
        what = f"an array of shape {positions.shape}" if isinstance(positions, np.ndarray) else type(positions).__name__
        return Refusal("shape", f"expected numbers, waypoints by joints, got {what}")
    if len(positions) < 2:
        return Refusal("shape", f"{len(positions)} waypoints; at least 2 are needed")
    if positions.shape[1] != len(chunk.joint_names):
        return Refusal("width", f"{positions.shape[1]} columns for {len(chunk.joint_names)} joint names")
    if not (math.isfinite(chunk.dt) and chunk.dt > 0.0):
        return Refusal("step", f"dt is {chunk.dt} s")
    return None


def _not_finite(positions: np.ndarray, limits: Limits) -> Refusal | None:
    if all_finite(positions):
        return None
    row, joint = (int(i) for i in np.argwhere(~np.isfinite(positions))[0])
    return Refusal("not_finite", f"{limits.joint_names[joint]} at waypoint {row} is {positions[row, joint]}")


def _time(now: float, chunk: ActionChunk, asked: Outstanding, running_t0: float | None, rules: Rules) -> Refusal | None:
    if not math.isfinite(chunk.t0):
        return Refusal("not_finite", f"the observation's time is {chunk.t0}")
    age = now - chunk.t0
    if age < -rules.future_tolerance_s:
        return Refusal("future", f"the observation's time is {-age:.3f} s ahead; are the clocks synchronised?")
    left = chunk.horizon - elapsed_steps(max(0.0, age), chunk.dt)
    if left <= 0:
        return Refusal(
            "elapsed", f"{chunk.horizon} waypoints of {chunk.dt:g} s from an observation {age:.3f} s ago: none is left"
        )
    if age > rules.max_plan_age_s:
        return Refusal("old_observation", f"the observation is {age:.3f} s old; allowed: {rules.max_plan_age_s:g} s")
    lag = asked.sent - chunk.t0
    if lag > rules.max_observation_lag_s:
        return Refusal(
            "old_observation",
            f"the observation is {lag:.3f} s older than its request; allowed: {rules.max_observation_lag_s:g} s",
        )
    if running_t0 is not None and chunk.t0 <= running_t0:
        return Refusal("not_newer", f"its observation is {running_t0 - chunk.t0:.3f} s older than the running plan's")
    return None


def _limits(positions: np.ndarray, rules: Rules, limits: Limits) -> Refusal | None:
    beyond = np.maximum(limits.lower - positions, positions - limits.upper)
    if beyond.max() <= rules.position_tolerance:
        return None
    row, joint = np.unravel_index(int(beyond.argmax()), beyond.shape)
    value = positions[row, joint]
    limit = limits.lower[joint] if value < limits.lower[joint] else limits.upper[joint]
    hint = ""
    if abs(value) > _DEGREES_HINT and limits.lower[joint] <= math.radians(value) <= limits.upper[joint]:
        hint = f"; these look like degrees: {value:.4g} degrees are {brief(math.radians(value))} rad"
    return Refusal(
        "limits", f"{limits.joint_names[joint]} at waypoint {row} is {brief(value)}, its limit {brief(limit)}{hint}"
    )


def _speed(positions: np.ndarray, dt: float, rules: Rules, limits: Limits) -> Refusal | None:
    if rules.max_speed_ratio <= 0.0:
        return None
    speed = np.abs(np.diff(positions, axis=0)) / dt
    over = np.where(limits.discrete, 0.0, speed / limits.velocity)
    if over.max() <= rules.max_speed_ratio:
        return None
    row, joint = np.unravel_index(int(over.argmax()), over.shape)
    return Refusal(
        "speed",
        f"{limits.joint_names[joint]} from waypoint {row} to {row + 1} at {brief(speed[row, joint])} per second, "
        f"its limit {brief(limits.velocity[joint])} (up to {rules.max_speed_ratio:g} times of it is slowed down)",
    )


def _jump(
    now: float, chunk: ActionChunk, positions: np.ndarray, command: np.ndarray | None, rules: Rules, limits: Limits
) -> Refusal | None:
    if command is None or rules.max_jump <= 0.0:
        return None
    s = min(max((now - chunk.t0) / chunk.dt, 0.0), chunk.horizon - 1.0)
    i = min(int(s), chunk.horizon - 2)
    there = positions[i] + (s - i) * (positions[i + 1] - positions[i])
    jump = np.where(limits.discrete, 0.0, np.abs(there - command))
    if jump.max() <= rules.max_jump:
        return None
    joint = int(jump.argmax())
    return Refusal(
        "jump",
        f"{limits.joint_names[joint]} is commanded to {brief(command[joint])}, the plan is at {brief(there[joint])}; "
        f"allowed: {rules.max_jump:g}",
    )
