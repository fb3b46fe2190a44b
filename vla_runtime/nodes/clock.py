"""From message stamps (ROS time) to steady seconds and back, whatever the ROS clock does.

Deadlines run on the steady clock. The offset between the two clocks is looked at for each message, so a ROS clock
that is slewed, stepped by NTP or looped by a bag moves no deadline; the step itself is noticed and reported.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from vla_runtime.nodes.clock_pace import ClockPace

NANO = 1_000_000_000

SYSTEM_STEP_S = 0.02
"""A step of the system clock from here on is a jump: slewing (at most 500 ppm) moves it by 10 microseconds per tick."""

SIMULATED_STEP_S = 0.5
"""The same for /clock, which itself arrives in steps and at a rate of its own."""

MEMORY_S = 2.0
"""How long after a jump a stamp may still be one from before it (messages in flight, inputs that stopped)."""

QUIET_S = 0.3
"""How long after a restart the ROS clock may catch up: /clock comes by way of the thread that was busy."""

AHEAD_WEIGHT = 20.0
"""After a jump back, a stamp may be a little ahead of now (hosts differ, /clock comes in steps) or old, from before the
jump: so many times less likely is each second ahead than a second of age."""

SLACK_S = 0.01
"""By so much a stamp may be on the wrong side of the jump: hosts differ."""

READ_TOLERANCE_S = 2e-4
"""Both clocks must be read within this time of each other; otherwise the thread was interrupted: read again."""

HELD_NS = 20_000
"""Two readings of the offset that differ by less are the same: otherwise each message would be dated by another one,
microseconds apart, and consecutive messages would not agree on where the motion is."""


@dataclass(frozen=True)
class Jump:
    """A step of the ROS clock against the steady clock."""

    at: float
    size_s: float

    def __str__(self) -> str:
        return f"the ROS clock jumped by {self.size_s:+.3f} s; deadlines run on the steady clock and are not affected"


class StampClock:
    """Converts between stamps in nanoseconds of ROS time and steady seconds. Safe to use from several threads.

    ``pace``: takes in every reading of a simulated clock.
    """

    def __init__(
        self,
        ros_now_ns: Callable[[], int],
        steady_now: Callable[[], float] = time.monotonic,
        step_s: float = SYSTEM_STEP_S,
        pace: ClockPace | None = None,
    ):
        self.pace = pace
        self._ros_now_ns = ros_now_ns
        self._steady_now = steady_now
        self._step_s = step_s
        self._lock = threading.Lock()
        self._offset_ns: int | None = None  # ROS nanoseconds at steady zero
        self._before_ns: int | None = None  # the same, before the last jump
        # ROS nanoseconds that were new when read, the offset then, and when that was (steady)
        self._moved: tuple[int, int, float] | None = None
        self._jumped_after = -math.inf  # the last reading before the last jump (steady)
        self._counts = True
        self._quiet_until = -math.inf
        self._last: Jump | None = None
        self._pending: Jump | None = None
        self.jumps = 0

    def watch(self) -> Jump | None:
        """Read both clocks; return a jump that happened since the last call of ``watch``, once."""
        with self._lock:
            self._read()
            jump, self._pending = self._pending, None
            return jump

    def restart(self) -> None:
        """Forget what was, after a pause in which nobody read the clock: what it does to catch up is no jump."""
        with self._lock:
            self._offset_ns = self._before_ns = self._moved = self._pending = None
            if self.pace is not None:
                self.pace.restart()
            self._quiet_until = self._steady_now() + QUIET_S

    def to_steady(self, stamp_ns: int) -> float:
        """Steady seconds of a stamp that arrived just now.

        For a while after a jump the stamp may come from before it. Of the two readings only those hold that lie on
        their side of the jump; of both, the younger one that is not ahead, or hardly so. A stamp in the future
        (another host's clock) stays in the future: its user judges it.
        """
        with self._lock:
            now = self._read()
            t = (stamp_ns - self._offset_ns) / NANO
            if self._before_ns is None:
                return t
            before = (stamp_ns - self._before_ns) / NANO
            since, before_it = t >= self._jumped_after - SLACK_S, before <= self._last.at + SLACK_S
            if since != before_it:
                return t if since else before
            return min((t, before), key=lambda x: now - x if x <= now else AHEAD_WEIGHT * (x - now))

    def to_stamp(self, t: float) -> int:
        """ROS nanoseconds of an instant on the steady clock, as the ROS clock counts now; never negative."""
        with self._lock:
            self._read()
            return max(0, self._offset_ns + round(t * NANO))

    def _read(self) -> float:
        """Bring the offset up to date; returns the steady time of the reading."""
        for _ in range(4):
            begin = self._steady_now()
            ros = self._ros_now_ns()
            now = self._steady_now()
            if now - begin < READ_TOLERANCE_S:
                break
        offset = ros - round((begin + now) / 2 * NANO)
        if self._offset_ns is not None and abs(offset - self._offset_ns) < HELD_NS:
            offset = self._offset_ns
        counts, self._counts = (
            self._counts and now > self._quiet_until,
            ros != 0,
        )  # ROS time is 0 until the first /clock: its start is no jump
        # /clock is heard in a thread that may be busy: a time that stands still and then catches up has not jumped.
        if self._moved is None or ros != self._moved[0]:
            size_s = 0.0 if self._moved is None else (offset - self._moved[1]) / NANO
            if counts and abs(size_s) >= self._step_s:
                self.jumps += 1
                if self.pace is not None:
                    self.pace.restart()
                self._before_ns, self._last = self._moved[1], Jump(now, size_s)
                self._jumped_after, self._pending = self._moved[2], self._last
            self._moved = ros, offset, now
        if self.pace is not None:
            self.pace.saw(ros, now)
        if self._last is not None and self._before_ns is not None and now - self._last.at > MEMORY_S:
            self._before_ns = None
        self._offset_ns = offset
        return now
