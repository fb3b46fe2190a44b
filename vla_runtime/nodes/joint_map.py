"""Joints by name, in every message: the order of a message is its sender's business."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from sensor_msgs.msg import JointState

from vla_runtime.control.finite import all_finite
from vla_runtime.control.trajectory import JointSample
from vla_runtime.errors import UserError
from vla_runtime.nodes.joint_state_cdr import FlatJointState, JointStateDecoder, UnreadableError, from_message

_REMEMBERED_ORDERS = 16
_VELOCITY_MEMORY_S = 0.2


class JointNameError(UserError):
    """A message whose joint names do not fit; the text names them."""


class JointMap:
    """Finds our joints in messages that name theirs in any order."""

    def __init__(self, joint_names: Sequence[str]):
        self.joint_names = tuple(joint_names)
        self._orders: dict[tuple[str, ...], np.ndarray] = {}

    def order(self, names: Sequence[str], what: str, *, more: bool = False) -> np.ndarray:
        """Indices i with names[i[k]] == joint_names[k], for a message that has our joints (``more``: and others).

        Raises JointNameError naming what is missing, unknown or given twice; ``what`` says in which message.
        """
        key = tuple(names)
        found = self._orders.get(key)
        if found is None:
            faults = _faults(tuple(n for n in key if n in self.joint_names) if more else key, self.joint_names)
            if faults:
                raise JointNameError(f"{what}: {faults}; expected {'' if more else 'exactly '}{list(self.joint_names)}")
            found = np.array([key.index(name) for name in self.joint_names], dtype=np.intp)
            if len(self._orders) >= _REMEMBERED_ORDERS:
                self._orders.clear()
            self._orders[key] = found
        return found


def _faults(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    missing = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted]
    twice = sorted({name for name in names if names.count(name) > 1})
    parts = [f"{label} joint {', '.join(found)}" for label, found in
             (("missing", missing), ("unknown", unknown), ("twice the", twice)) if found]  # fmt: skip
    return "; ".join(parts)


class JointReader:
    """Puts JointStates together to samples in the controller's order.

    Joints may come in parts (an arm's driver and a gripper's): a sample is as old as its oldest joint, so a joint that
    is no longer sent ages the whole. Joints that are not ours are passed over. Where a driver sends no velocities, or
    NaN (joint_state_broadcaster, for a joint without that interface), they are the difference of positions.
    ``fault`` names what is wrong at present, "" if nothing is. ``lag_s``: by how much the newest message was stamped
    before it arrived (``read_newest``), seconds; NaN before the first.
    """

    def __init__(self, joint_names: Sequence[str]):
        self.joint_names = tuple(joint_names)
        self._index = {name: i for i, name in enumerate(self.joint_names)}
        n = len(self.joint_names)
        self._t = np.full(n, -np.inf)
        self._position, self._velocity, self._effort = np.zeros(n), np.zeros(n), np.full(n, np.nan)
        self._picks: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}
        self._stamps: dict[tuple[str, ...], int] = {}  # of the last message with these names, ns of ROS time
        self._sound_names: tuple[str, ...] = ()  # of the last message whose names were in order
        self._decoder = JointStateDecoder()
        self.fault = ""
        self.refused = 0
        self.lag_s = math.nan

    @property
    def sources(self) -> int:
        """From how many drivers joint states should come: each names other joints; one before the first came."""
        return max(1, len(self._picks))

    def read_newest(
        self, messages: Sequence[bytes], steady: Callable[[int], float], arrival: float = math.nan
    ) -> JointSample | None:
        """As ``read``, for several serialised messages, oldest first; those before one with all joints are not read.

        ``steady`` gives the steady seconds of a stamp in nanoseconds; ``arrival``: steady seconds of the last message.
        """
        parts: list[FlatJointState] = []
        for data in reversed(messages):
            try:
                parts.append(self._decoder.read(data))
            except UnreadableError as error:  # whoever sends it must not keep the good ones from us
                self.fault, self.refused = str(error), self.refused + 1
                continue
            if len(self._pick(parts[-1].names)[0]) == len(self.joint_names):
                break
        newest = None
        for part in reversed(parts):
            t = steady(part.stamp_ns)
            self.lag_s = arrival - t
            if self._stamps.get(part.names) == part.stamp_ns:
                continue  # a driver that repeats itself; a clock that jumped would make it look young
            self._stamps[part.names] = part.stamp_ns
            newest = self._read(part, t) or newest
        return newest

    def read(self, message: JointState, t: float) -> JointSample | None:
        """Take one message whose stamp is ``t`` (steady seconds); the sample, once every joint was heard."""
        return self._read(from_message(message), t)

    def _read(self, flat: FlatJointState, t: float) -> JointSample | None:
        source, target = self._pick(flat.names)
        if flat.names and not len(source) and t - self._t.min() <= _VELOCITY_MEMORY_S:
            return None  # somebody else's, a mobile base's wheels: ours come all the same
        problem = self._problem(flat, source)
        if problem:
            self.fault, self.refused = problem, self.refused + 1
            return None
        position = flat.position[source]
        velocity = flat.velocity[source] if len(flat.velocity) else np.full(len(source), np.nan)
        if not all_finite(velocity):
            unknown = np.isnan(velocity)
            gap = t - self._t[target]
            moving = (gap > 0) & (gap < _VELOCITY_MEMORY_S)
            differences = np.where(moving, (position - self._position[target]) / np.where(moving, gap, 1.0), 0.0)
            velocity = np.where(unknown, differences, velocity)
        self._position[target], self._velocity[target], self._t[target] = position, velocity, t
        if len(flat.effort):
            self._effort[target] = flat.effort[source]
        oldest = min(self._t.tolist())
        self.fault = "" if t - oldest <= _VELOCITY_MEMORY_S else self._lost(t)
        if oldest == -np.inf:
            return None
        effort = self._effort.copy() if all_finite(self._effort) else None  # not finite: not measured
        return JointSample(oldest, self._position.copy(), self._velocity.copy(), effort)

    def _lost(self, t: float) -> str:
        absent = [name for name, seen in zip(self.joint_names, self._t) if seen == -np.inf]
        lost = [name for name, seen in zip(self.joint_names, self._t) if t - seen > _VELOCITY_MEMORY_S]
        return f"joint states lack {', '.join(absent or lost)}"

    def _pick(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        found = self._picks.get(names)
        if found is None:
            pairs = [(i, self._index[name]) for i, name in enumerate(names) if name in self._index]
            found = tuple(np.array(column, dtype=np.intp) for column in (zip(*pairs) if pairs else ((), ())))
            if len(self._picks) >= _REMEMBERED_ORDERS:
                self._picks.clear()
                self._stamps.clear()
            self._picks[names] = found
        return found

    def _problem(self, flat: FlatJointState, source: np.ndarray) -> str:
        names = flat.names
        if names != self._sound_names:
            if len(set(names)) != len(names):
                return f"joint state names {', '.join(sorted({n for n in names if names.count(n) > 1}))} twice"
            if not len(source):
                return f"joint states lack {', '.join(self.joint_names)}: they name {', '.join(names) or 'nothing'}"
            self._sound_names = names
        for field in ("position", "velocity", "effort"):
            values = getattr(flat, field)
            if len(values) != len(names) and (field == "position" or len(values)):
                return f"joint state has {len(values)} values of {field} for {len(names)} names"
            if field == "effort" or all_finite(values):
                continue
            wrong = np.isinf(values) if field == "velocity" else ~np.isfinite(values)  # NaN: no such interface
            if wrong[source].any():
                bad = [names[i] for i in source if wrong[i]]
                return f"joint state {field} of {', '.join(bad)} is not finite"
        return ""
