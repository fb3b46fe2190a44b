"""Who is alive of a family of processes, what each one holds, and what shared memory they had: from /proc.

The family is known by a mark in its environment, which children inherit: also those whose parent has died.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import TypedDict

import numpy as np

_SHARED_MEMORY = "/dev/shm/"
_MARK = "VLA_SOAK"


class Figures(TypedDict):
    """What a process holds: resident memory, of it what is its own (neither file nor shared), handles, threads."""

    rss_mib: float
    own_mib: float
    handles: int
    threads: int


class Census:
    """Looks at the processes that carry ``token`` in their environment (start them with :attr:`mark`, after this)."""

    def __init__(self, token: str):
        self.mark = {_MARK: token}
        self._line = f"{_MARK}={token}".encode()
        self._seen: dict[int, tuple[str, list[tuple[float, Figures]]]] = {}
        self._before = set(_there())
        self._segments: dict[str, set[str]] = {}  # by name: the processes that had it mapped
        self._locks: set[str] = set()  # names in /dev/shm that one of them had open

    def look(self, now: float) -> set[str]:
        """Note what each one holds at ``now`` (s); return the names of those that were there before and are not."""
        alive = self._pids()
        gone = {name for pid, (name, _) in self._seen.items() if pid not in alive}
        for pid in alive:
            with contextlib.suppress(OSError):  # it may end while it is looked at
                figures, name = _figures(pid), _name(pid)
                self._locks |= _open(pid)
                for segment in _segments(pid):
                    self._segments.setdefault(segment, set()).add(name)
                self._seen.setdefault(pid, (name, []))[1].append((now, figures))
        return gone

    def growth(self, settled_s: float) -> dict[str, dict]:
        """By name: ``settled`` and ``end`` (:class:`Figures` at the first look after ``settled_s`` and at the last),
        ``percent``, by which the resident memory is larger at the end, and ``kib_per_min``, its slope over all looks
        between them; ``mib_each_minute``: that memory at the first look of each minute."""
        found = {}
        for name, looks in self._seen.values():
            late = [look for look in looks if look[0] >= settled_s]
            if len(late) < 2:
                continue
            minutes = np.array([now for now, _ in late]) / 60.0
            slope = np.polyfit(minutes, [1024.0 * figures["rss_mib"] for _, figures in late], 1)[0]
            each = {int(now // 60.0): figures["rss_mib"] for now, figures in reversed(looks)}
            settled, end = late[0][1], late[-1][1]
            found[name] = {
                "settled": settled,
                "end": end,
                "percent": round(100.0 * (end["rss_mib"] / settled["rss_mib"] - 1.0), 2),
                "kib_per_min": round(float(slope), 2),
                "mib_each_minute": [round(each[minute], 1) for minute in sorted(each)],
            }
        return dict(sorted(found.items()))

    def alive(self) -> list[str]:
        """Command lines of those alive."""
        lines = []
        for pid in self._pids():
            with contextlib.suppress(OSError):
                lines.append(" ".join(_command_line(pid)))
        return lines

    def segments_left(self) -> list[str]:
        """Names in /dev/shm that one of them had mapped at a look, that are still there and were not before the soak.

        Each with the processes that had it. Fast DDS maps what others made, too: whoever makes a segment holds its lock
        (a file named ``_el`` beside it), so one with a lock that none of them held is a stranger's.
        """
        there = set(_there())
        left = there & set(self._segments) - self._before
        ours = [name for name in left if f"{name}_el" not in there or f"{name}_el" in self._locks]
        return [f"{name} ({', '.join(sorted(self._segments[name]))})" for name in sorted(ours)]

    def kill(self) -> None:
        """End whoever is left."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pids(self) -> list[int]:
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # A zombie's environment reads as empty: it is dead, its parent has not looked yet.
                if self._line in (folder / "environ").read_bytes().split(b"\0"):
                    pids.append(int(folder.name))
        return pids


def _there() -> list[str]:
    return [path.name for path in Path(_SHARED_MEMORY).iterdir()]


def _figures(pid: int) -> Figures:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024.0, 2),
        "own_mib": round(int(status["RssAnon"].split()[0]) / 1024.0, 2),
        "handles": sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        "threads": int(status["Threads"]),
    }


def _segments(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(_SHARED_MEMORY, 1)[1].removesuffix(" (deleted)") for line in lines if _SHARED_MEMORY in line}


def _open(pid: int) -> set[str]:
    names = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            target = str(file.readlink())
            if target.startswith(_SHARED_MEMORY):
                names.add(target.removeprefix(_SHARED_MEMORY).removesuffix(" (deleted)"))
    return names


def _command_line(pid: int) -> list[str]:
    return [word.decode(errors="replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def _name(pid: int) -> str:
    """A short name for a process of `vla demo`: the subcommand of `vla`, or the module."""
    words = [word for word in _command_line(pid) if word]
    modules = [i for i, word in enumerate(words) if word.startswith("vla_runtime.") and not word.endswith(".tether")]
    if not modules:
        return Path(words[0]).name
    module = words[modules[-1]]
    return words[modules[-1] + 1] if module.endswith(".cli") else module.rsplit(".", 1)[-1]
