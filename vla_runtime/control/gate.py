"""The rules that a trajectory must pass before the arm may see it.

``joint_trajectory_controller`` checks names, sizes, increasing times and a resting end, and drops what fails without a
word to the sender. It checks neither NaN nor limits nor the distance from where the arm is: all that is checked here,
between the points as well as at them, and every refusal says which joint, which value and which limit.
"""

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.finite import all_finite
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.errors import brief

_FUTURE_S = 0.005  # two clock readings on one machine differ by less
_TIME_S = 1e-6  # rounding of a stamp to nanoseconds and back


@dataclass(frozen=True)
class GateRefusal:
    """Why a trajectory may not pass.

    Attributes:
        reason: a short key to count by: ``late``, ``future``, ``names``, ``form``, ``not_finite``, ``position``,
            ``velocity``, ``acceleration``, ``jump``, ``unknown_plan``, ``old_observation``.
        text: the joint, the value and the limit, for people.
    """

    reason: str
    text: str


class Gate:
    """Judges trajectories against the limits of the joints. It keeps no state of its own."""

    def __init__(self, limits: Limits, settings: WatchdogSettings) -> None:
        self.limits = limits
        self.settings = settings
        self._turns = np.where(limits.discrete, 3.0, 1.0)

    def form(self, now: float, trajectory: Trajectory, max_age_s: float) -> GateRefusal | None:
        """Check all that does not depend on where the arm is: freshness, names, shape, numbers, times, the end."""
        age = now - trajectory.start
        if not np.isfinite(age) or age < -_FUTURE_S:
            return GateRefusal("future", f"stamped {-age:.3f} s in the future")
        if age > max_age_s + _TIME_S:
            return GateRefusal("late", f"stamped {age:.3f} s ago (limit {max_age_s} s)")
        if tuple(trajectory.joint_names) != tuple(self.limits.joint_names):
            return GateRefusal(
                "names", f"joints {list(trajectory.joint_names)}, expected {list(self.limits.joint_names)}"
            )
        fault = trajectory.fault()
        if fault is not None:
            finite = all(map(all_finite, (trajectory.times, trajectory.positions, trajectory.velocities)))
            return GateRefusal("form" if finite else "not_finite", fault)
        if len(trajectory.times) < 2:
            return GateRefusal("form", "one point is no trajectory: at least two are needed")
        if trajectory.end <= now:
            return GateRefusal("late", f"ended {now - trajectory.end:.3f} s ago: nothing of it is left")
        return None

    def limits_kept(self, trajectory: Trajectory) -> GateRefusal | None:
        """Check position, velocity and acceleration at every point and between the points.

        Between two points the controller follows a cubic. Its position and velocity stay within the hull of its Bezier
        points; only where a hull point is outside are the exact extremes worked out. Its acceleration is a straight
        line, so its ends are its extremes.

        A command may begin outside the position limits (an arm parked beyond a soft limit), but go no further out.
        """
        return self.verdict(trajectory)[0]

    def verdict(self, trajectory: Trajectory) -> tuple[GateRefusal | None, np.ndarray]:
        """Return what :meth:`limits_kept` does, and which joints (n,) bool break a limit."""
        limits, slack = self.limits, 1.0 + self.settings.limit_tolerance
        q, v, times = trajectory.positions, trajectory.velocities, trajectory.times
        h = (times[1:] - times[:-1])[:, None]
        v0, v1 = v[:-1], v[1:]
        middle = (q[1:] - q[:-1]) * (3.0 / h) - v0 - v1  # the velocity's Bezier points: v0, middle, v1
        rise = 2.0 / h
        at_start, at_end = (middle - v0) * rise, (v1 - middle) * rise
        worst = np.abs(np.concatenate((at_start, at_end))).max(axis=0)
        over = worst > limits.acceleration * slack
        refusal = self._over("acceleration", worst, limits.acceleration, "rad/s^2") if over.any() else None

        fast = np.abs(np.concatenate((v, middle))).max(axis=0) > limits.velocity * slack
        if fast.any():
            largest = _largest_speed(v0, v1, at_start, at_end, h)
            fast = largest > limits.velocity * slack
            if fast.any():
                over |= fast
                refusal = refusal or self._over("velocity", largest, limits.velocity, "rad/s")

        reach = h / 3.0
        hull = np.concatenate((q, q[:-1] + v0 * reach, q[1:] - v1 * reach))
        low, high = hull.min(axis=0), hull.max(axis=0)
        if (low < limits.lower).any() or (high > limits.upper).any():
            margin = self.settings.position_tolerance_rad
            lower = np.minimum(limits.lower - margin, q[0] - 1e-9)
            upper = np.maximum(limits.upper + margin, q[0] + 1e-9)
            low, high = _range(trajectory, at_start, at_end)
            below, above = low < lower, high > upper
            if below.any():
                refusal = refusal or self._outside(low, limits.lower, int(np.argmin(low - lower)), "below")
            if above.any():
                refusal = refusal or self._outside(high, limits.upper, int(np.argmax(high - upper)), "above")
            over = over | below | above
        return refusal, over

    def continuous(self, trajectory: Trajectory, last: Trajectory, tolerance_rad: float = 0.0) -> GateRefusal | None:
        """Check that ``trajectory`` goes on from the ``last`` command.

        They are compared at the stamp of the new one, or where ``last`` begins if that is later (a late message). The
        planner may have turned up to one control period, and a message's way, before its turn could be commanded: one
        and a half periods are allowed for that. So they may differ by the way of that time at the velocity limit, and
        by the difference that two accelerations at the limit make in it. Discrete joints step from limit to limit at
        full speed, and what they lag at one turn they cannot catch up before the next: they are allowed three turns.
        What differs is led onto the new one inside the limits, never jumped. ``tolerance_rad`` is allowed on top, in
        position, and per 0.1 s in velocity.
        """
        lag = 1.5 * self.settings.period_s
        t = max(trajectory.start, last.start)
        apart = max(t - trajectory.start, lag)
        q0, v0 = _at(last, t)
        q1, v1 = _at(trajectory, t)
        acceleration = self.limits.acceleration
        step_limit = self._turns * self.limits.velocity * lag + acceleration * apart**2 + tolerance_rad
        speed_limit = self._turns * acceleration * (2.0 * apart) + 10.0 * tolerance_rad
        step, change = np.abs(q1 - q0), np.abs(v1 - v0)
        if (step > step_limit).any():
            joint = int(np.argmax(step - step_limit))
            return GateRefusal(
                "jump",
                f"{self._name(joint)} jumps from {brief(q0[joint])} to {brief(q1[joint])} rad "
                f"(limit {brief(step_limit[joint])})",
            )
        if (change > speed_limit).any():
            joint = int(np.argmax(change - speed_limit))
            return GateRefusal(
                "jump",
                f"{self._name(joint)} jumps from {brief(v0[joint])} to {brief(v1[joint])} rad/s "
                f"(limit {brief(speed_limit[joint])})",
            )
        return None

    def near(self, trajectory: Trajectory, measured: np.ndarray) -> GateRefusal | None:
        """Check the very first command: it must begin within one control period's travel of the measured state.

        Discrete joints are left out: a gripper that holds something is measured wider than it is commanded, and the
        executor goes on from the command that it saw last (a restarted watchdog saw none).
        """
        limit = self.limits.velocity * self.settings.period_s
        step = np.where(self.limits.discrete, 0.0, np.abs(trajectory.positions[0] - measured))
        if (step <= limit).all():
            return None
        joint = int(np.argmax(step - limit))
        return GateRefusal(
            "jump",
            f"{self._name(joint)} begins at {brief(trajectory.positions[0, joint])} rad, "
            f"measured {brief(measured[joint])} rad (limit {brief(limit[joint])} apart)",
        )

    def _name(self, joint: int) -> str:
        return self.limits.joint_names[joint]

    def _over(self, reason: str, values: np.ndarray, limit: np.ndarray, unit: str) -> GateRefusal:
        joint = int(np.argmax(values / limit))
        reached, most = brief(values[joint]), brief(limit[joint])
        return GateRefusal(reason, f"{self._name(joint)} reaches {reached} {unit} (limit {most})")

    def _outside(self, values: np.ndarray, limit: np.ndarray, joint: int, side: str) -> GateRefusal:
        return GateRefusal(
            "position",
            f"{self._name(joint)} reaches {brief(values[joint])} rad, {side} its limit {brief(limit[joint])}",
        )


def _at(trajectory: Trajectory, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Sample, at no cost where ``t`` is the start."""
    if t == trajectory.start:
        return trajectory.positions[0], trajectory.velocities[0]
    return trajectory.sample(t)


def _largest_speed(v0: np.ndarray, v1: np.ndarray, a0: np.ndarray, a1: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return the exact largest |velocity| (n,) over cubic segments of duration ``h`` (m-1, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        s = a0 / (a0 - a1)  # where the acceleration is 0
        vertex = np.abs(v0 + 0.5 * h * a0 * s)
    peak = np.where((s > 0.0) & (s < 1.0), vertex, 0.0)
    return np.maximum(np.maximum(np.abs(v0), np.abs(v1)), peak).max(axis=0)


def _range(trajectory: Trajectory, a0: np.ndarray, a1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact smallest and largest position (n,), (n,) over the whole trajectory."""
    q, v = trajectory.positions, trajectory.velocities
    h = np.diff(trajectory.times)[:, None]
    low, high = q.min(axis=0), q.max(axis=0)
    half = 0.5 * (a1 - a0) / h  # velocity = v0 + a0 t + half t^2
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(a0**2 - 4.0 * half * v[:-1])
        # The stable pair of roots: no difference of nearly equal numbers.
        w = -0.5 * (a0 + np.copysign(root, a0))
        for t in (w / half, v[:-1] / w):
            turning = q[:-1] + t * (v[:-1] + t * (0.5 * a0 + t * half / 3.0))
            inside = (t > 0.0) & (t < h)
            low = np.minimum(low, np.where(inside, turning, np.inf).min(axis=0))
            high = np.maximum(high, np.where(inside, turning, -np.inf).max(axis=0))
    return low, high
