"""An independent judge of the command stream: the promises of docs/architecture.md, as seen by the controller.

It shares no code with the gate, and what is checked is what a controller would execute.
"""

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.errors import brief

MIN_GAP_S = 0.004
CONTINUITY = 1e-6  # rad and rad/s between consecutive commands at the stamp of the newer


@dataclass(frozen=True)
class Violation:
    """A broken promise: when (steady s), which rule, and the figures."""

    at: float
    rule: str
    text: str


def cubics(h: np.ndarray, positions: np.ndarray, velocities: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the coefficients (m - 1, n) of the cubics that a controller draws between points, third power first.

    h: (m - 1, 1) s, the pieces' lengths; positions, velocities: (m, n) at the points. The test holds it to SciPy's
    ``CubicHermiteSpline``, whose making costs as much as everything else that is judged here.
    """
    v0, v1 = velocities[:-1], velocities[1:]
    mean = (positions[1:] - positions[:-1]) / h
    return (v0 + v1 - 2.0 * mean) / h**2, (3.0 * mean - 2.0 * v0 - v1) / h, v0, positions[:-1]


class CommandChecker:
    """Checks every command of a stream, and each against the one before.

    Args:
        limits: of the joints.
        slack: fraction by which velocity and acceleration may exceed their limits (the gate's own tolerance).
        position_slack_rad: the same for positions.
    """

    def __init__(self, limits: Limits, slack: float = 0.0101, position_slack_rad: float = 0.0011) -> None:
        self._limits = limits
        self._slack = 1.0 + slack
        self._position_slack = position_slack_rad
        self.last: Trajectory | None = None
        self.violations: list[Violation] = []
        self.commands = 0

    def forget(self) -> None:
        """Forget the last command: the next one begins a stream of its own."""
        self.last = None

    def check(self, now: float, command: Trajectory | None, due: bool, jerk_limited: bool = False) -> None:
        """Judge what was published at ``now``.

        Args:
            now: steady seconds.
            command: what was published, or None.
            due: whether a command had to be published in this period.
            jerk_limited: whether it must keep the jerk limits as well (the fallback's stop).
        """
        if command is None:
            if due:
                self.note(now, "silence", "no command in a period in which one was due")
            return
        self.commands += 1
        if self._form(now, command):
            self._limits_kept(now, command, jerk_limited)
            self._continuous(now, command)
        self.last = command

    def note(self, now: float, rule: str, text: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(now, rule, text))

    def _form(self, now: float, command: Trajectory) -> bool:
        before = len(self.violations)
        arrays = (command.times, command.positions, command.velocities)
        if not all(np.isfinite(array).all() for array in arrays):
            self.note(now, "finite", "a number is not finite")
            return False
        if command.joint_names != self._limits.joint_names:
            self.note(now, "names", f"{command.joint_names}")
        if command.start != now or command.times[0] != 0.0:
            self.note(now, "stamp", f"starts at {command.start}, first point {command.times[0]}, now {now}")
        if len(command.times) < 2 or np.diff(command.times).min() < MIN_GAP_S - 1e-9:
            self.note(now, "times", f"points closer than {MIN_GAP_S} s: {command.times}")
        if np.any(command.velocities[-1] != 0.0):
            self.note(now, "rest", f"ends at {np.abs(command.velocities[-1]).max()} rad/s")
        if command.start + command.times[-1] <= now:
            self.note(now, "past", "ends before it is sent")
        return len(self.violations) == before

    def _limits_kept(self, now: float, command: Trajectory, jerk_limited: bool) -> None:
        limits = self._limits
        h = np.diff(command.times)[:, None]
        c3, c2, c1, c0 = cubics(h, command.positions, command.velocities)
        a_start, a_end = 2.0 * c2, 2.0 * c2 + 6.0 * c3 * h
        with np.errstate(divide="ignore", invalid="ignore"):
            top = -c2 / (3.0 * c3)  # where the velocity of a piece turns
            v_top = np.where((top > 0.0) & (top < h), np.abs(c1 - c2**2 / (3.0 * c3)), 0.0)
            root = np.sqrt(c2**2 - 3.0 * c3 * c1)
            turns = np.stack([(-c2 + root) / (3.0 * c3), (-c2 - root) / (3.0 * c3), -c1 / (2.0 * c2)])
            turns = np.where((turns > 0.0) & (turns < h), turns, 0.0)
        q = c0 + turns * (c1 + turns * (c2 + turns * c3))
        speed = np.maximum(np.abs(command.velocities).max(axis=0), v_top.max(axis=0))
        acceleration = np.maximum(np.abs(a_start), np.abs(a_end)).max(axis=0)
        low = np.minimum(command.positions.min(axis=0), q.min(axis=(0, 1)))
        high = np.maximum(command.positions.max(axis=0), q.max(axis=(0, 1)))
        self._over(now, "velocity", speed, limits.velocity)
        self._over(now, "acceleration", acceleration, limits.acceleration)
        # An arm may be parked beyond a limit; the command may not lead further out.
        first = command.positions[0]
        lower = np.minimum(limits.lower - self._position_slack, first - 1e-6)
        upper = np.maximum(limits.upper + self._position_slack, first + 1e-6)
        if (low < lower).any() or (high > upper).any():
            joint = int(np.argmax(np.maximum(lower - low, high - upper)))
            self.note(
                now, "position", f"{limits.joint_names[joint]} between {brief(low[joint])} and {brief(high[joint])} rad"
            )
        if jerk_limited:
            # Where a point had to be left out, acceleration is bent over up to two gaps; not more than that.
            allowed = limits.jerk * (h + 2.0 * MIN_GAP_S) * self._slack
            steps = np.abs(np.concatenate((a_start[1:], a_end[-1:])) - a_start)
            if (steps > allowed).any():
                piece, joint = np.unravel_index(int(np.argmax(steps - allowed)), steps.shape)
                self.note(
                    now,
                    "jerk",
                    f"{limits.joint_names[joint]}: acceleration changes by {brief(steps[piece, joint])} rad/s^2 in "
                    f"{h[piece, 0]:.4f} s (limit {brief(allowed[piece, joint])})",
                )

    def _over(self, now: float, rule: str, values: np.ndarray, limit: np.ndarray) -> None:
        if (values > limit * self._slack).any():
            joint = int(np.argmax(values / limit))
            name = self._limits.joint_names[joint]
            self.note(now, rule, f"{name} {brief(values[joint])} above {brief(limit[joint])}")

    def _continuous(self, now: float, command: Trajectory) -> None:
        """Consecutive commands agree at the newer one's stamp, and their starts are a legal step apart."""
        last, limits = self.last, self._limits
        if last is None:
            return
        position, velocity = last.sample(now)
        step = np.abs(command.positions[0] - position).max()
        change = np.abs(command.velocities[0] - velocity).max()
        if step > CONTINUITY or change > CONTINUITY:
            self.note(now, "jump", f"{brief(step)} rad and {brief(change)} rad/s away from the command before")
        period = now - last.start
        moved = np.abs(command.positions[0] - last.positions[0])
        turned = np.abs(command.velocities[0] - last.velocities[0])
        self._over(now, "step", moved, limits.velocity * period + 1e-9)
        self._over(now, "velocity step", turned, limits.acceleration * period + 1e-9)
