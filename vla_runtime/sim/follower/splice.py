"""How a new message is put in the place of the old one, or spliced into it."""

from collections.abc import Sequence

import numpy as np

from vla_runtime.sim.follower.message import Point, TrajectoryMessage
from vla_runtime.sim.follower.sampling import ActiveTrajectory, State

_FIELDS = ("positions", "velocities", "accelerations", "effort")


class JointOrder:
    """Brings messages into the controller's joint order.

    Duplicate names pass the checks at reception; the joint that is missing for them then gets whatever the last vector
    that was sorted had at its place. So it is in the controller (a static buffer), and so it is here.
    """

    def __init__(self, joint_names: Sequence[str]):
        self.names = list(joint_names)
        self._buffer = np.zeros(len(self.names))

    def sort(self, message: TrajectoryMessage) -> None:
        """Sort all vectors of a message that names every joint (or as many names as there are joints)."""
        if message.joint_names == self.names:
            self._buffer[:] = next(v for v in map(message.points[-1].__getattribute__, _FIELDS[::-1]) if len(v))
            return
        places = [self.names.index(name) for name in message.joint_names]
        for point in message.points:
            for field in _FIELDS:
                values = getattr(point, field)
                if len(values) == len(places):
                    self._buffer[places] = values
                    setattr(point, field, self._buffer.copy())
        message.joint_names = list(self.names)

    def fill(self, message: TrajectoryMessage, position: np.ndarray) -> None:
        """Let joints that the message omits stand at `position` (n,) rad."""
        if len(message.joint_names) == len(self.names):
            return
        omitted = [i for i, name in enumerate(self.names) if name not in message.joint_names]
        message.joint_names = message.joint_names + [self.names[i] for i in omitted]
        zero = np.zeros(len(omitted))
        for point in message.points:
            _append(point, position[omitted], zero, zero)


def splice(
    message: TrajectoryMessage,
    active: ActiveTrajectory,
    order: JointOrder,
    now_ns: int,
    cursor_ns: int,
    command: np.ndarray,
) -> TrajectoryMessage:
    """The running trajectory up to the new message's start, then the new one; as `allow_trajectory_replacement` does.

    A stamp that is not in the future means "start now": its elapsed points are replayed, not dropped. Joints that the
    message omits go on with the running trajectory. cursor_ns: how far the running trajectory has been played; command:
    (n,) rad, where omitted joints stand if that trajectory cannot be sampled.
    """
    names = order.names
    named = np.array([name in message.joint_names for name in names])
    start_ns = cursor_ns + max(message.stamp_ns - now_ns, 0)
    bridge = active.sample(start_ns)
    if not named.all():
        _fill_from(active, message, order, start_ns, command)
    order.sort(message)

    last = message.points[-1]
    end_ns = start_ns + last.time_ns
    old = [(active.start_ns + p.time_ns, p) for p in active.points]
    points = [_at(p, t_ns) for t_ns, p in old if cursor_ns < t_ns < start_ns]
    if bridge is not None and message.points[0].time_ns > 0:
        state = bridge.state
        points.append(Point(start_ns, state.positions, state.velocities, state.accelerations))
    points += [_at(p, start_ns + p.time_ns) for p in message.points]
    if not named.all():
        for t_ns, p in old:
            if t_ns > end_ns:
                points.append(_at(p, t_ns, hold=named, at=last))
    for point in points:
        point.time_ns -= cursor_ns
    return TrajectoryMessage(0, list(names), points)


def _append(point: Point, positions: np.ndarray, velocities: np.ndarray, accelerations: np.ndarray) -> None:
    for field, values in zip(_FIELDS, (positions, velocities, accelerations, np.zeros(len(positions)))):
        if len(getattr(point, field)):
            setattr(point, field, np.concatenate([getattr(point, field), values]))


def _fill_from(
    active: ActiveTrajectory, message: TrajectoryMessage, order: JointOrder, start_ns: int, command: np.ndarray
) -> None:
    if len(message.joint_names) == len(order.names):  # duplicates: as many names as joints, and none is filled
        return
    omitted = [i for i, name in enumerate(order.names) if name not in message.joint_names]
    message.joint_names = message.joint_names + [order.names[i] for i in omitted]
    for point in message.points:
        sample = active.sample(start_ns + point.time_ns)
        state = sample.state if sample else State(command, np.zeros(len(command)), np.zeros(len(command)))
        _append(point, state.positions[omitted], state.velocities[omitted], state.accelerations[omitted])


def _at(point: Point, time_ns: int, hold: np.ndarray | None = None, at: Point | None = None) -> Point:
    """A copy of the point at another time; the joints in `hold` stand where `at` has them."""
    copy = Point(time_ns, point.positions.copy(), point.velocities.copy(), point.accelerations.copy(), point.effort)
    if hold is not None:
        copy.positions[hold] = at.positions[hold]
        for field in ("velocities", "accelerations"):
            if len(getattr(copy, field)):
                getattr(copy, field)[hold] = 0.0
    return copy
