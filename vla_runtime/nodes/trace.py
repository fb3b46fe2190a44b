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
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

FORMAT = 1
LINK = "~"
"""The key that marks what JSON has no word for: arrays and our own types."""

SAME = {LINK: "same"}
"""Stands for an argument that is the same object as in the last call of that method."""
_SAME_TEXT = json.dumps(SAME, separators=(",", ":"))

EXECUTOR_CALLS = ("offer", "tick", "flush", "retune", "note")
WATCHDOG_CALLS = ("saw_request", "saw_answer", "saw_heartbeat", "unsaid", "offer_teleop", "activate", "stop", "hold",
                  "release", "reset", "retune", "tick")  # fmt: skip
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


_text: Callable[[str], str] = json.encoder.encode_basestring_ascii
_WORDS = {None: "null", True: "true", False: "false"}


def written(value: Any) -> str:
    """Return a value as compact JSON, the same text for the same value. Raises TypeError for what no trace may hold.

    Text at once, and not by way of a tree of dicts for json.dumps: it is half of what a trace costs.
    """
    kind = type(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else json.dumps(value)
    if kind is str:
        return _text(value)
    if value is None or kind is bool:
        return _WORDS[value]
    if kind is int:
        return repr(value)
    if isinstance(value, np.ndarray):
        data = base64.b64encode(value.tobytes()).decode("ascii")
        shape = ",".join(map(str, value.shape))
        return f'{{"{LINK}":"array","type":{_text(value.dtype.str)},"shape":[{shape}],"bytes":"{data}"}}'
    if hasattr(kind, "__dataclass_fields__"):
        members = {name: written(getattr(value, name)) for name in kind.__dataclass_fields__}
        return _object({LINK: _text(kind.__name__), **members})
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, Mapping):
        items = ",".join(f"[{written(key)},{written(item)}]" for key, item in value.items())
        return f'{{"{LINK}":"map","items":[{items}]}}'
    if isinstance(value, Enum):
        return written(value.value)
    if isinstance(value, np.generic):
        return written(value.item())
    for plain in (int, float, str):
        if isinstance(value, plain):
            return written(plain(value))
    raise TypeError(f"a trace cannot hold {kind.__name__}")


def _object(members: Mapping[str, str]) -> str:
    """Return a JSON object of values that are written already."""
    return "{" + ",".join([f"{_text(name)}:{text}" for name, text in members.items()]) + "}"


def revive(value: Any, types: Mapping[str, Callable[..., Any]]) -> Any:
    """Turn what :func:`written` wrote back into values; lists come back as tuples.

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
    parts: list[bytes] = []
    _take_apart(parts, result)
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def _take_apart(parts: list[bytes], value: Any) -> None:
    """Add a value's bytes; each part begins with its kind, so that no two values share a text."""
    kind = type(value)
    if kind in (float, int, str, bool, type(None)):
        parts.append(repr(value).encode())
    elif isinstance(value, np.ndarray):
        parts += (_array_head(value.dtype, value.shape), value.tobytes())
    elif hasattr(kind, "__dataclass_fields__"):
        parts.append(kind.__name__.encode())
        for name in kind.__dataclass_fields__:
            _take_apart(parts, getattr(value, name))
    elif isinstance(value, (list, tuple)):
        parts.append(f"list{len(value)}".encode())
        for item in value:
            _take_apart(parts, item)
    else:
        parts.append(written(value).encode())


@lru_cache(maxsize=256)
def _array_head(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    return f"array{dtype.str}{shape}".encode()


def inference_record(answer: Any, seed: int) -> str:
    """Write down one answer of the policy: what it was computed from, and the digest of its actions.

    Pictures are in a recording already: they are named by their digests. ``answer``: a
    :class:`vla_runtime.nodes.inference.Answer`; ``seed``: of its noise.
    """
    seen = answer.observation
    return _object(
        {
            "format": written(FORMAT),
            "call": written("infer"),
            "id": written(answer.request.request_id),
            "t": written(seen.t),
            "images": _object({name: written(digest(image)) for name, image in seen.images.items()}),
            "state": written(seen.state),
            "instruction": written(seen.instruction),
            "prefix": written(None if answer.prefix is None else answer.prefix.positions),
            "count": written(answer.prefix_count),
            "seed": written(seed),
            "result": written(digest(answer.actions)),
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
        head = {"n": written(self.number), "call": written(self.call)}
        if self.call == "start":
            return _object({"format": written(FORMAT), **head, "with": written(self.args[0])})
        args = [
            _SAME_TEXT if i in self.same and dataclasses.is_dataclass(arg) else written(arg)
            for i, arg in enumerate(self.args)
        ]
        record = {**head, "args": f"[{','.join(args)}]"}
        if self.raised:
            return _object({**record, "raised": written(self.raised)})
        record["result"] = written(digest(self.result))
        label = self.label(self.result)
        if label:
            record["note"] = written(label)
        return _object(record)
