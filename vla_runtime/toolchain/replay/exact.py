"""Asks the control cores of a recorded run the same questions again, and compares every answer bit for bit.

The questions are in the bag, on ``executor/trace`` and ``watchdog/trace`` (vla_runtime.nodes.trace): each call with
its arguments and the digest of its result.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.fallback import installed_planners
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.errors import UserError
from vla_runtime.nodes.trace import EXECUTOR_CALLS, FORMAT, SAME, WATCHDOG_CALLS, digest, revive
from vla_runtime.toolchain.damaged import UNREADABLE, expect_bag

TYPES = {
    kind.__name__: kind for kind in (ActionChunk, ExecutorSettings, JointSample, Limits, Trajectory, WatchdogSettings)
}
NODES = {"executor": EXECUTOR_CALLS, "watchdog": WATCHDOG_CALLS}


@dataclass
class Session:
    """The calls of one core, from its making to the end of the recording (or to a gap in it)."""

    node: str
    start: dict[str, Any]
    calls: list[dict[str, Any]] = field(default_factory=list)
    lost: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of replaying one session."""

    node: str
    calls: int
    equal: int
    ticks: int
    kinds: dict[str, int]
    notes: tuple[tuple[float, str], ...]
    difference: str = ""

    @property
    def same(self) -> bool:
        """Whether every answer was equal."""
        return not self.difference and self.equal == self.calls


@dataclass(frozen=True)
class Traces:
    """What a bag has of traces; ``headless``: records by node that belong to a core made before the recording."""

    sessions: list[Session]
    headless: dict[str, int]
    empty: bool


def read_traces(bag: Path) -> Traces:
    """Read the traces of a bag. Raises UserError if there is no readable bag."""
    expect_bag(bag)
    try:
        with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_KILTED)) as reader:
            return sort_records(_records(reader))
    except (OSError, json.JSONDecodeError, *UNREADABLE) as error:
        raise UserError(f"the bag '{bag}' cannot be read: {error}") from error


def _records(reader: AnyReader) -> Iterator[tuple[str, dict[str, Any]]]:
    wanted = [c for c in reader.connections if c.topic.endswith("/trace") and c.msgtype == "std_msgs/msg/String"]
    for connection, _, raw in reader.messages(connections=wanted) if wanted else ():
        for line in reader.deserialize(raw, connection.msgtype).data.splitlines():
            yield connection.topic.removesuffix("/trace"), json.loads(line)


def sort_records(records: Iterable[tuple[str, dict[str, Any]]]) -> Traces:
    """Sort records into sessions. A number that never comes ends a session: what follows depends on what is missing.

    Neighbours may have changed places (a recorder that came late gets old and new messages at once).
    """
    sessions: list[Session] = []
    running: dict[str, Session] = {}
    ahead: dict[str, dict[int, dict[str, Any]]] = {}  # by topic: records whose predecessors have not come yet
    headless: Counter[str] = Counter()
    seen = False

    def leave_behind(topic: str) -> None:
        left = ahead.pop(topic, {})
        if left:
            headless[topic.rsplit("/", 1)[-1]] += len(left)
            if topic in running:
                running[topic].lost = True

    for topic, record in records:
        seen = True
        node = topic.rsplit("/", 1)[-1]
        if node not in NODES:
            continue
        if record["call"] == "start":
            if record["format"] != FORMAT:
                raise UserError(
                    f"the trace of {topic} has format {record['format']}; this version reads format {FORMAT}"
                )
            if topic in running:
                leave_behind(topic)
            running[topic] = Session(node, record["with"])
            sessions.append(running[topic])
        else:
            ahead.setdefault(topic, {})[record["n"]] = record
        session, waiting = running.get(topic), ahead.get(topic, {})
        while session is not None and (following := waiting.pop(len(session.calls) + 1, None)) is not None:
            session.calls.append(following)
    for topic in list(ahead):
        leave_behind(topic)
    return Traces(sessions, dict(headless), not seen)


def make_core(session: Session, **changes: Any) -> Executor | Watchdog:
    """Make the core of a session; ``changes``: other values of its parameters."""
    start = {item[0]: revive(item[1], TYPES) for item in session.start["items"]}
    if changes:
        start["settings"] = type(start["settings"])(**{**vars(start["settings"]), **changes})
    if session.node == "executor":
        return Executor(**start)
    return Watchdog(**start, planners=installed_planners())


def replay(session: Session) -> Outcome:
    """Ask a new core everything that the old one was asked; stop at the first difference."""
    core = make_core(session)
    kinds: Counter[str] = Counter()
    notes: list[tuple[float, str]] = []
    last: dict[str, tuple[Any, ...]] = {}
    for i, record in enumerate(session.calls):
        name = record["call"]
        if name not in NODES[session.node]:
            raise UserError(f"the trace of the {session.node} has an unknown call '{name}'; it is from another version")
        before = last.get(name, ())
        args = tuple(before[k] if arg == SAME else revive(arg, TYPES) for k, arg in enumerate(record["args"]))
        last[name] = args
        kinds[name] += 1
        if "note" in record:
            notes.append((_when(args), record["note"]))
        said = _ask(core, name, args)
        expected = record.get("result", record.get("raised"))
        if said != expected:
            when = f" at {_when(args):.6f} s" if args and isinstance(args[0], float) else ""
            text = f"call {record['n']} ({name}{when}): recorded {expected}, now {said}"
            note = f"; the recording says: {record['note']}" if "note" in record else ""
            return Outcome(session.node, len(session.calls), i, kinds["tick"], dict(kinds), tuple(notes), text + note)
    return Outcome(session.node, len(session.calls), len(session.calls), kinds["tick"], dict(kinds), tuple(notes))


def _ask(core: Any, name: str, args: tuple[Any, ...]) -> str:
    try:
        return digest(getattr(core, name)(*args))
    except Exception as error:  # the recorded core may have raised too: that is an answer like any other
        return type(error).__name__


def _when(args: tuple[Any, ...]) -> float:
    return args[0] if args and isinstance(args[0], float) else 0.0
