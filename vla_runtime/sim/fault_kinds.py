"""Every way in which the parts around the watchdog fail: a table of kinds, each a screw that is turned and turned back.

A kind is a function of the world and a random generator: it turns something now, arranges for it to be turned back,
and returns how long it lasts, seconds.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.sim.control_world import PERIOD_S, ControlWorld

Kind = Callable[[ControlWorld, np.random.Generator], float]


# How everything is while nothing fails; overlapping faults all turn back to this.
SOUND: dict[str, object] = {
    "hung": False,
    "dead": False,
    "status": "ready",
    "extra_latency_s": 0.0,
    "frozen_t0": None,
    "corrupt": None,
    "joints_on": True,
    "joint_change": None,
    "executor_on": True,
    "planned_change": None,
    "planned_delay_s": 0.0,
    "lose_requests": False,
    "lose_answers": False,
    "copies": 1,
    "pushed": 0.0,
}


def _turn(world: ControlWorld, thing: object, name: str, value: object, seconds: float) -> float:
    """Set an attribute for a while."""
    setattr(thing, name, value)
    world.later(seconds, setattr, thing, name, SOUND[name])
    return float(seconds)


# The policy


def hang(world: ControlWorld, rng: np.random.Generator) -> float:
    """The inference thread hangs; the heartbeat's thread goes on."""
    return _turn(world, world.policy, "hung", True, rng.uniform(0.1, 1.2))


def crash(world: ControlWorld, rng: np.random.Generator) -> float:
    """The policy's process dies, comes back, warms up."""
    gone, warming = rng.uniform(0.1, 1.0), rng.uniform(0.05, 0.5)
    policy = world.policy
    policy.dead = True

    def back() -> None:
        policy.dead, policy.status = False, "warming"
        world.later(warming, setattr, policy, "status", "ready")

    world.later(gone, back)
    return gone + warming


def error(world: ControlWorld, rng: np.random.Generator) -> float:
    """The engine raises; the policy says so."""
    return _turn(world, world.policy, "status", "error: engine raised", rng.uniform(0.1, 0.6))


def slow(world: ControlWorld, rng: np.random.Generator) -> float:
    """Inference takes several times as long as it should."""
    return _turn(world, world.policy, "extra_latency_s", rng.uniform(0.1, 0.5), rng.uniform(0.5, 1.5))


def late(world: ControlWorld, rng: np.random.Generator) -> float:
    """One answer comes much too late."""
    _turn(world, world.policy, "extra_latency_s", rng.uniform(0.3, 1.2), 0.2)
    return 1.4


def stale_camera(world: ControlWorld, rng: np.random.Generator) -> float:
    """The camera repeats its last picture, with its old stamp."""
    return _turn(world, world.policy, "frozen_t0", world.policy.observe(world.now), rng.uniform(0.3, 2.6))


def _corrupting(change: Callable[[ActionChunk, np.random.Generator], ActionChunk]) -> Kind:
    def kind(world: ControlWorld, rng: np.random.Generator) -> float:
        return _turn(world, world.policy, "corrupt", lambda chunk: change(chunk, rng), rng.uniform(0.2, 1.4))

    kind.__doc__ = change.__doc__
    return kind


def _nan(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """One number of the plan is not a number, or infinite."""
    positions = chunk.positions.copy()
    positions[rng.integers(len(positions)), rng.integers(positions.shape[1])] = rng.choice([np.nan, np.inf, -np.inf])
    return replace(chunk, positions=positions)


def _wrong_width(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """The plan has a column too few or too many."""
    positions = chunk.positions
    wide = np.column_stack([positions, positions[:, :1]])
    return replace(chunk, positions=positions[:, 1:] if rng.random() < 0.5 else wide)


def _wrong_names(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """The plan speaks of a joint that is not there."""
    names = list(chunk.joint_names)
    names[rng.integers(len(names))] = "no_such_joint"
    return replace(chunk, joint_names=tuple(names))


def _degrees(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """The plan is in degrees."""
    return replace(chunk, positions=np.degrees(chunk.positions))


def _runaway(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """The plan jumps, or races off."""
    ramp = np.linspace(0.0, rng.uniform(1.0, 30.0), len(chunk.positions))[:, None]
    jump = rng.uniform(-2.0, 2.0, chunk.positions.shape[1])
    return replace(chunk, positions=chunk.positions + (ramp if rng.random() < 0.5 else jump))


def _other_time(chunk: ActionChunk, rng: np.random.Generator) -> ActionChunk:
    """The plan claims an observation from the future, or a step that is no time."""
    if rng.random() < 0.5:
        return replace(chunk, t0=chunk.t0 + rng.uniform(0.05, 50.0))
    return replace(chunk, dt=float(rng.choice([0.0, -0.02, np.nan])))


# Messages


def lost_request(world: ControlWorld, rng: np.random.Generator) -> float:
    """Requests do not reach the policy."""
    return _turn(world, world, "lose_requests", True, rng.uniform(0.1, 0.6))


def lost_answer(world: ControlWorld, rng: np.random.Generator) -> float:
    """Answers reach nobody."""
    return _turn(world, world, "lose_answers", True, rng.uniform(0.1, 0.6))


def duplicate(world: ControlWorld, rng: np.random.Generator) -> float:
    """Every message comes twice or three times."""
    return _turn(world, world, "copies", int(rng.integers(2, 4)), rng.uniform(0.2, 1.0))


def late_stream(world: ControlWorld, rng: np.random.Generator) -> float:
    """Planned trajectories take their time."""
    return _turn(world, world, "planned_delay_s", rng.uniform(0.01, 0.12), rng.uniform(0.1, 0.8))


def burst(world: ControlWorld, rng: np.random.Generator) -> float:
    """Planned trajectories are held up and then come all at once."""
    held: list[tuple[float, Trajectory]] = []
    seconds = rng.uniform(0.04, 0.4)

    def hold(planned: Trajectory) -> None:
        held.append((world.now, planned))

    world.planned_change = hold

    def release() -> None:
        world.planned_change = None
        for sent, planned in held:
            world.deliver_planned(planned, sent)  # the newest may be young enough to be used

    world.later(seconds, release)
    return seconds


def _spoiling(change: Callable[[Trajectory, np.random.Generator], Trajectory]) -> Kind:
    def kind(world: ControlWorld, rng: np.random.Generator) -> float:
        return _turn(world, world, "planned_change", lambda planned: change(planned, rng), rng.uniform(0.02, 0.4))

    kind.__doc__ = change.__doc__
    return kind


def _stream_nan(planned: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The executor's own numbers go bad."""
    velocities = planned.velocities.copy()
    velocities[rng.integers(len(velocities)), rng.integers(velocities.shape[1])] = np.nan
    return replace(planned, velocities=velocities)


def _stream_jump(planned: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The executor's stream jumps away from the command."""
    return replace(planned, positions=planned.positions + rng.choice([-1.0, 1.0]) * rng.uniform(0.2, 1.0))


def _stream_fast(planned: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The executor's stream asks for what no joint can do."""
    middle = len(planned.positions) // 2
    positions = planned.positions.copy()
    positions[middle] += rng.uniform(0.3, 2.0)
    return replace(planned, positions=positions)


def _stream_moving_end(planned: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The executor's messages do not end at rest."""
    velocities = planned.velocities.copy()
    velocities[-1] = rng.uniform(0.1, 1.0)
    return replace(planned, velocities=velocities)


def _stream_names(planned: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The executor names the joints in another order than the columns are."""
    return replace(planned, joint_names=planned.joint_names[::-1])


# Robot and clocks


def stale_joints(world: ControlWorld, rng: np.random.Generator) -> float:
    """Joint states stop."""
    return _turn(world, world, "joints_on", False, rng.uniform(0.05, 0.6))


def nan_joints(world: ControlWorld, rng: np.random.Generator) -> float:
    """A driver sends joint states that are not numbers."""

    def spoil(sample):
        return replace(sample, position=np.full_like(sample.position, np.nan))

    return _turn(world, world, "joint_change", spoil, rng.uniform(0.05, 0.4))


def frozen_joints(world: ControlWorld, rng: np.random.Generator) -> float:
    """A driver repeats its last joint state, stamp included."""
    last = None

    def repeat(sample):
        nonlocal last
        if last is None:
            last = sample
            world.truth.joints_sent(world.now)  # the first time it is news
        return last

    return _turn(world, world, "joint_change", repeat, rng.uniform(0.05, 0.6))


def clock_forward(world: ControlWorld, rng: np.random.Generator) -> float:
    """The ROS clock jumps forward."""
    world.clock_s += float(rng.choice([rng.uniform(0.02, 1.0), rng.uniform(1.0, 1e5)]))
    return 0.3


def clock_back(world: ControlWorld, rng: np.random.Generator) -> float:
    """The ROS clock jumps back."""
    world.clock_s -= float(rng.choice([rng.uniform(0.02, 1.0), rng.uniform(1.0, 1e5)]))
    return 0.3


def blocked_arm(world: ControlWorld, rng: np.random.Generator) -> float:
    """Something pushes the arm away, or holds it back; a person resets what that latches."""
    seconds = rng.uniform(0.1, 1.2)
    push = rng.uniform(-0.9, 0.9, len(world.limits))
    _turn(world, world, "pushed", push, seconds)
    world.later(seconds + 0.2, lambda: world.watchdog.reset(world.now))
    return seconds + 0.2


# Processes


def executor_death(world: ControlWorld, rng: np.random.Generator) -> float:
    """The executor's process dies and is started anew."""
    seconds = rng.uniform(0.04, 0.8)
    world.executor_on = False

    def back() -> None:
        world.executor_on = True
        world.start_executor()

    world.later(seconds, back)
    return seconds


def executor_stop(world: ControlWorld, rng: np.random.Generator) -> float:
    """The executor's process is stopped and goes on later, as if nothing had been."""
    return _turn(world, world, "executor_on", False, rng.uniform(0.02, 0.8))


def watchdog_restart(world: ControlWorld, rng: np.random.Generator) -> float:
    """The watchdog's process is started anew; the arm goes on with its last message."""
    world.start_watchdog()
    return 0.5


# Operators


def operator_hold(world: ControlWorld, rng: np.random.Generator) -> float:
    """An operator holds the arm and releases it."""
    seconds = rng.uniform(0.02, 1.0)
    world.watchdog.hold(world.now)
    world.later(seconds, lambda: world.watchdog.release(world.now))
    return seconds


def teleop(world: ControlWorld, rng: np.random.Generator) -> float:
    """An operator's leader arm takes over from wherever it happens to be, moves, jumps, and goes silent."""
    seconds = rng.uniform(0.1, 1.5)
    end = world.now + seconds
    limits = world.limits
    goal = rng.uniform(0.7 * limits.lower, 0.7 * limits.upper)

    def send() -> None:
        nonlocal goal
        if rng.random() < 0.02:
            goal = rng.uniform(0.7 * limits.lower, 0.7 * limits.upper)
        rest = np.zeros((2, len(limits)))
        still = np.stack([goal, goal])
        stream = Trajectory(world.now, limits.joint_names, np.array([0.0, 0.2]), still, rest)
        world.watchdog.offer_teleop(world.now, stream)
        if world.now < end:
            world.later(PERIOD_S, send)

    send()
    return seconds


KINDS: dict[str, Kind] = {
    "hang": hang,
    "crash": crash,
    "error": error,
    "slow": slow,
    "late": late,
    "nan": _corrupting(_nan),
    "wrong_width": _corrupting(_wrong_width),
    "wrong_names": _corrupting(_wrong_names),
    "degrees": _corrupting(_degrees),
    "runaway": _corrupting(_runaway),
    "other_time": _corrupting(_other_time),
    "stale_camera": stale_camera,
    "stale_joints": stale_joints,
    "frozen_joints": frozen_joints,
    "nan_joints": nan_joints,
    "clock_forward": clock_forward,
    "clock_back": clock_back,
    "burst": burst,
    "late_stream": late_stream,
    "stream_nan": _spoiling(_stream_nan),
    "stream_jump": _spoiling(_stream_jump),
    "stream_fast": _spoiling(_stream_fast),
    "stream_moving_end": _spoiling(_stream_moving_end),
    "stream_names": _spoiling(_stream_names),
    "lost_request": lost_request,
    "lost_answer": lost_answer,
    "duplicate": duplicate,
    "executor_death": executor_death,
    "executor_stop": executor_stop,
    "watchdog_restart": watchdog_restart,
    "blocked_arm": blocked_arm,
    "operator_hold": operator_hold,
    "teleop": teleop,
}
