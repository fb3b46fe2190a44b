"""What a control core was asked and what it answered, written down so that a replay can ask it again.

The executor and the watchdog are pure: the same calls in the same order give the same answers, bit for bit. So a
trace is the list of their calls, each with its arguments (times included: steady seconds, exact) and a digest of its
result. It goes out as JSON text, one call a line, on ``executor/trace`` and ``watchdog/trace``; a bag that has
them can be replayed without ROS (``vla replay``). This module needs no ROS either: it is the format's only home.

A trace begins with a ``start`` record (settings, limits, versions), written at every activation. Floats survive
exactly: JSON numbers in Python's shortest form, arrays as the base64 of their bytes.
"""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

FORMAT = 1
LINK = "~"
"""The key that marks what JSON has no word for: arrays and our own types."""

SAME = {LINK: "same"}
"""Stands for an argument that is the same object as in the last call of that method."""

EXECUTOR_CALLS = ("offer", "tick", "flush", "retune", "note")
WATCHDOG_CALLS = ("saw_request", "saw_answer", "saw_heartbeat", "offer_teleop", "activate", "stop", "hold", "release",
                  "reset", "retune", "tick")  # fmt: skip
"""The methods of each core that decide, or that feed decisions: all others only tell."""


def executor_note(result: Any) -> str:
    """Return a request's id and cause, or why a plan was refused."""
    request = getattr(result, "request", None)
    if request is not None:
        return f"request {request.request_id}: {request.cause}"
    return f"refused: {result}" if getattr(result, "reason", None) else ""


def watchdog_note(result: Any) -> str:
    """Return a change of state with its cause."""
    change = getattr(result, "transition", None)
    return "" if change is None else f"{change.source} -> {change.target}: {change.cause}"


# Made once: json.dumps makes an encoder for every call that asks for other separators.
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def plain(value: Any) -> Any:
    """Turn a value into what JSON can say. Raises TypeError for what a trace must not hold."""
    if value is None or isinstance(value, (bool, int, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.ndarray):
        text = base64.b64encode(value.tobytes()).decode("ascii")
        return {LINK: "array", "type": value.dtype.str, "shape": list(value.shape), "bytes": text}
    if isinstance(value, np.generic):
        return plain(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
        return {LINK: type(value).__name__, **members}
    if isinstance(value, Mapping):
        return {LINK: "map", "items": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return list(value) if all(type(item) is str for item in value) else [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"a trace cannot hold {type(value).__name__}")


def revive(value: Any, types: Mapping[str, Callable[..., Any]]) -> Any:
    """Turn what :func:`plain` made back into values; lists come back as tuples.

    ``types``: constructor of each of our own types by its name. Raises ValueError for a type that is not among them
    (the text of a bag never decides what is constructed).
    """
    if isinstance(value, list):
        return tuple(revive(item, types) for item in value)
    if not isinstance(value, dict):
        return value
    kind = value.get(LINK)
    if kind == "array":
        dtype = np.dtype(value["type"])
        if dtype.hasobject:
            raise ValueError("a trace holds numbers, no objects")
        data = base64.b64decode(value["bytes"])
        return np.frombuffer(data, dtype).reshape(value["shape"]).copy()
    if kind == "map":
        return {revive(key, types): revive(item, types) for key, item in value["items"]}
    if kind not in types:
        raise ValueError(f"a trace with an unknown type '{kind}'; known are: {', '.join(sorted(types))}")
    return types[kind](**{key: revive(item, types) for key, item in value.items() if key != LINK})


def dumps(value: Any) -> str:
    """Write a plain value as compact JSON, the same text for the same value."""
    return _ENCODER.encode(value)


def pieces(lines: Iterable[str], size: int) -> Iterator[str]:
    """Join lines to texts of ``size`` characters each, filled up with blanks; a longer line stays whole, alone.

    DDS keeps the last messages, each in a buffer that grows to the largest message it ever held. Of messages between 10
    and 160 KB it takes half an hour until every buffer is as large as it will be. Of pieces that blanks make equal (at
    the end of a line JSON does not mind them), DDS has all its memory once the buffers have gone round.
    """
    piece: list[str] = []
    length = 0
    for line in lines:
        if piece and length + len(line) > size:
            yield "\n".join(piece).ljust(size)
            piece, length = [], 0
        piece.append(line)
        length += len(line) + 1
    if piece:
        yield "\n".join(piece).ljust(size)


def digest(result: Any) -> str:
    """Return 16 hexadecimal digits over every bit of a result."""
    hasher = hashlib.blake2b(digest_size=8)
    _feed(hasher, result)
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    """Hash a value part by part; each part begins with its kind, so that no two values share a text."""
    if isinstance(value, np.ndarray):
        hasher.update(f"array{value.dtype.str}{value.shape}".encode())
        hasher.update(np.ascontiguousarray(value))
    elif hasattr(value, "__dataclass_fields__"):
        hasher.update(type(value).__name__.encode())
        for name in value.__dataclass_fields__:
            _feed(hasher, getattr(value, name))
    elif isinstance(value, (list, tuple)):
        hasher.update(f"list{len(value)}".encode())
        for item in value:
            _feed(hasher, item)
    elif type(value) in (float, int, str, bool, type(None)):
        hasher.update(repr(value).encode())
    else:
        hasher.update(dumps(plain(value)).encode())


def inference_record(answer: Any, seed: int) -> str:
    """Write down one answer of the policy: what it was computed from, and the digest of its actions.

    Pictures are in a recording already: they are named by their digests. ``answer``: a
    :class:`vla_runtime.nodes.inference.Answer`; ``seed``: of its noise.
    """
    seen = answer.observation
    return dumps(
        {
            "format": FORMAT,
            "call": "infer",
            "id": answer.request.request_id,
            "t": seen.t,
            "images": {name: digest(image) for name, image in seen.images.items()},
            "state": plain(seen.state),
            "instruction": seen.instruction,
            "prefix": None if answer.prefix is None else plain(answer.prefix.positions),
            "count": answer.prefix_count,
            "seed": seed,
            "result": digest(answer.actions),
        }
    )


class Traced:
    """Stands before a control core and notes each call of the named methods.

    Everything else (attributes, other methods) reaches the core as it is. A call that raises is noted with its error
    and raises as before. For one thread, like the core itself. What is noted are references, for a microsecond a
    call: :meth:`Note.text` writes them out later, when somebody wants them. So arguments and results must not be
    changed afterwards; those of the cores never are.

    Args:
        core: the executor or the watchdog.
        methods: names of the methods that are decisions or feed them.
        keep: takes one :class:`Note`; must not block.
        label: takes a result, returns a short text for people (a state, a refusal), or "".
    """

    def __init__(
        self,
        core: Any,
        methods: tuple[str, ...],
        keep: Callable[["Note"], None],
        label: Callable[[Any], str] = lambda _: "",
    ):
        self._core, self._keep, self._label = core, keep, label
        self._count = 0
        self._last: dict[str, tuple[Any, ...]] = {}
        self.tracing = True
        for name in methods:
            setattr(self, name, self._noted(name, getattr(core, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def begin(self, **what: Any) -> None:
        """Note the ``start``: all that is needed to make the same core again."""
        self._count = 0
        self._last.clear()
        self._keep(Note(0, "start", (what,), (), None, "", self._label))

    def _noted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if not self.tracing:
                return method(*args)
            self._count += 1
            last = self._last.get(name, ())
            same = tuple(i for i, arg in enumerate(args) if i < len(last) and arg is last[i])
            self._last[name] = args
            try:
                result = method(*args)
            except Exception as error:
                self._keep(Note(self._count, name, args, same, None, type(error).__name__, self._label))
                raise
            self._keep(Note(self._count, name, args, same, result, "", self._label))
            return result

        return call


@dataclasses.dataclass(frozen=True, eq=False)
class Note:
    """One call, not yet written out. ``same``: places of arguments that are the objects of the last such call."""

    number: int
    call: str
    args: tuple[Any, ...]
    same: tuple[int, ...]
    result: Any
    raised: str
    label: Callable[[Any], str]

    def text(self) -> str:
        """Write it out as one line of JSON."""
        if self.call == "start":
            return dumps({"format": FORMAT, "n": 0, "call": "start", "with": plain(self.args[0])})
        args = [
            SAME if i in self.same and dataclasses.is_dataclass(arg) else plain(arg) for i, arg in enumerate(self.args)
        ]
        record = {"n": self.number, "call": self.call, "args": args}
        if self.raised:
            return dumps({**record, "raised": self.raised})
        record["result"] = digest(self.result)
        label = self.label(self.result)
        if label:
            record["note"] = label
        return dumps(record)
