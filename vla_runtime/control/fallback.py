"""Fallback planners: what the arm does when nobody who may drive it has anything valid to say.

All of them start from the last *command* (not from the measured state, which lags it), are jerk-limited, stay inside
the limits and end at rest. Built in are

* ``stop``: each joint stops as soon as it can. Needs no measurement, so it is the reaction when least is known.
* ``hold``: all joints stop together, at a fraction of the limits, which keeps the path; then the arm stays there.
* ``retreat``: ``hold``, then through named poses in the order that the user gives, resting at each.

Other packages add planners under the entry point group ``vla_runtime.fallback_planners``: a callable that takes
:class:`PlannerContext` and returns a :class:`FallbackPlanner`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

import numpy as np

from vla_runtime.control.brake import brake
from vla_runtime.control.limits import Limits
from vla_runtime.control.motion import MotionState, move, stop
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.errors import UserError

ENTRY_POINT_GROUP = "vla_runtime.fallback_planners"


@dataclass(frozen=True)
class PlannerContext:
    """What a planner is built from, once.

    Attributes:
        limits: of the joints, in the controller's order.
        step_s: grid of the stops, seconds.
        gentle_fraction: of acceleration and jerk, for reactions that need not be as hard as can be.
        retreat: names of the poses to go through, in this order.
        retreat_speed: fraction of all limits on the way.
        poses: pose name -> {joint: rad}; a joint that a pose does not name stays where it is.
    """

    limits: Limits
    step_s: float = 0.01
    gentle_fraction: float = 0.5
    retreat: tuple[str, ...] = ()
    retreat_speed: float = 0.3
    poses: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Situation:
    """What is known when a fallback begins.

    Attributes:
        now: steady seconds; the trajectory asked for starts here.
        last: the last command; the arm is being driven along it.
        state: its position, velocity and acceleration at ``now``.
        measured: the newest joint state, or None if it is too old to be believed.
        cause: why, in words.
    """

    now: float
    last: Trajectory
    state: MotionState
    measured: JointSample | None
    cause: str


class FallbackPlanner(Protocol):
    """Plans what the arm does from a situation on. ``plan`` is called once per fallback, not every tick."""

    needs_measurement: bool
    """Whether this planner moves the arm somewhere: then it is not used while the measured state is unknown."""

    def plan(self, situation: Situation) -> Trajectory:
        """Return a trajectory that starts at ``situation.now`` in ``situation.state`` and ends at rest.

        ``brake_from`` is 0 if all of it is a stop, None if it goes somewhere (the watchdog then sends only a window of
        it at a time). What is returned passes the gate or is not used; so is an exception.
        """
        ...


PlannerFactory = Callable[[PlannerContext], FallbackPlanner]


class Stop:
    """Each joint stops as soon as its limits allow."""

    needs_measurement = False

    def __init__(self, context: PlannerContext) -> None:
        self._limits = context.limits
        self._step_s = context.step_s

    def plan(self, situation: Situation) -> Trajectory:
        """Stop from the last command; a joint with no room left for that follows the last command's own brake."""
        limits, state = self._limits, situation.state
        columns: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        # An acceleration towards the end stop can make the jerk-limited way longer than the room. The next two break
        # the jerk limit at one instant, never that of acceleration.
        hard = -np.sign(state.velocity) * limits.acceleration
        for acceleration in (state.acceleration, np.zeros(len(limits)), hard):
            whole = brake(state.position, state.velocity, acceleration, limits, self._step_s)
            roomy = _inside(whole.positions.min(axis=0), whole.positions.max(axis=0), state.position, limits)
            for joint in np.flatnonzero(roomy):
                columns.setdefault(int(joint), (whole.positions[:, joint], whole.velocities[:, joint]))
            if len(columns) == len(limits):
                break
        for joint in range(len(limits)):
            columns.setdefault(joint, self._own_brake(situation, joint))
        rows = max(2, *(len(positions) for positions, _ in columns.values()))
        ordered = [columns[joint] for joint in range(len(limits))]
        return Trajectory(
            situation.now,
            limits.joint_names,
            self._step_s * np.arange(rows),
            np.column_stack([np.pad(q, (0, rows - len(q)), mode="edge") for q, _ in ordered]),
            np.column_stack([np.pad(v, (0, rows - len(v))) for _, v in ordered]),
            brake_from=0,
        )

    def _own_brake(self, situation: Situation, joint: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one joint of what the last command would still do, on the grid: that is known to fit."""
        steps = int(np.ceil(max(situation.last.end - situation.now, 0.0) / self._step_s)) + 1
        sampled = [situation.last.sample(situation.now + k * self._step_s) for k in range(steps)]
        return np.array([q[joint] for q, _ in sampled]), np.array([v[joint] for _, v in sampled])


class Hold:
    """All joints stop together and gently, so that the arm stays on its path; a harder stop where that needs room."""

    needs_measurement = False

    def __init__(self, context: PlannerContext) -> None:
        self._limits = context.limits
        self._fraction = context.gentle_fraction
        self._hard = Stop(context)

    def plan(self, situation: Situation) -> Trajectory:
        """Stop gently if the limits leave room, else as ``stop`` does."""
        limits = self._limits
        profile = stop(situation.state, limits.acceleration * self._fraction, limits.jerk * self._fraction)
        if not _inside(profile.low, profile.high, situation.state.position, limits).all():
            return self._hard.plan(situation)
        return Trajectory(
            situation.now, limits.joint_names, profile.times, profile.positions, profile.velocities, brake_from=0
        )


class Retreat:
    """Stop gently, then go through named poses, resting at each, and stay at the last.

    Raises:
        UserError: at construction, for a pose that is missing, names an unknown joint or lies outside the limits.
    """

    needs_measurement = True

    def __init__(self, context: PlannerContext) -> None:
        self._limits = context.limits
        self._speed = context.retreat_speed
        self._hold = Hold(context)
        if not context.retreat:
            raise UserError("fallback 'retreat': no poses named; list them in order in the parameter 'retreat_poses'")
        self._poses = [_pose(name, context) for name in context.retreat]

    def plan(self, situation: Situation) -> Trajectory:
        """Return the stop and one leg per pose, as one trajectory."""
        limits = self._limits
        first = self._hold.plan(situation)
        times, positions, velocities = [first.times], [first.positions], [first.velocities]
        for pose in self._poses:
            here = positions[-1][-1]
            target = np.where(np.isnan(pose), here, pose)
            zero = np.zeros(len(limits))
            speed = (limits.velocity * self._speed, limits.acceleration * self._speed, limits.jerk * self._speed)
            leg = move(MotionState(here, zero, zero), target, *speed)
            times.append(times[-1][-1] + leg.times[1:])
            positions.append(leg.positions[1:])
            velocities.append(leg.velocities[1:])
        return Trajectory(
            situation.now,
            limits.joint_names,
            np.concatenate(times),
            np.concatenate(positions),
            np.concatenate(velocities),
        )


BUILT_IN: dict[str, PlannerFactory] = {"stop": Stop, "hold": Hold, "retreat": Retreat}


def installed_planners() -> dict[str, PlannerFactory]:
    """Return the built-in planners and those of installed packages, by name; a built-in name cannot be taken over."""
    found: dict[str, PlannerFactory] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found[entry.name] = _lazy(entry)
    return {**found, **BUILT_IN}


def _lazy(entry) -> PlannerFactory:
    return lambda context: entry.load()(context)


def build_planner(name: str, planners: Mapping[str, PlannerFactory], context: PlannerContext) -> FallbackPlanner:
    """Return the planner called ``name``.

    Raises:
        UserError: if there is none of that name, or if it cannot be built.
    """
    if name not in planners:
        raise UserError(f"no fallback planner '{name}'; there are: {', '.join(sorted(planners))}")
    try:
        return planners[name](context)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"fallback planner '{name}' cannot be built: {type(error).__name__}: {error}") from error


def _inside(low: np.ndarray, high: np.ndarray, position: np.ndarray, limits: Limits) -> np.ndarray:
    """Return (n,) bool: does the way stay inside the limits, or at least go no further out than it starts?"""
    return (low >= np.minimum(limits.lower, position) - 1e-9) & (high <= np.maximum(limits.upper, position) + 1e-9)


def _pose(name: str, context: PlannerContext) -> np.ndarray:
    """Return the pose as (n,) rad, NaN where it leaves a joint alone."""
    poses, limits = context.poses or {}, context.limits
    if name not in poses:
        raise UserError(f"fallback 'retreat': no pose '{name}'; there are: {', '.join(sorted(poses)) or 'none'}")
    target = np.full(len(limits), np.nan)
    for joint, value in poses[name].items():
        if joint not in limits.joint_names:
            raise UserError(f"pose '{name}': no joint '{joint}'; there are: {', '.join(limits.joint_names)}")
        index = limits.joint_names.index(joint)
        if not limits.lower[index] <= value <= limits.upper[index]:
            raise UserError(
                f"pose '{name}': {joint} = {value} rad is outside its limits "
                f"[{limits.lower[index]}, {limits.upper[index]}]"
            )
        target[index] = value
    return target
