"""How a simulated clock runs beside the steady one: plans are executed on the steady one, stamps are of the other.

A simulator that runs at half the speed of the world sees the arm move twice as fast as planned. And where ``/clock``
comes ten times a second, all stamps of 0.1 s are the same: a controller that knows the time better executes each
message up to 0.1 s further than it should, and jumps back with the next tick of the clock.
"""

WINDOW_S = 5.0
STANDS_S = 0.035
"""So long may the clock stand still, as far as readings 20 ms apart can tell: at 50 Hz it does for less."""
RATE = 0.05
"""By so much its rate may differ from 1."""
STOPPED_S = 2.0
"""A clock that has stood still for so long is paused, or nobody publishes it."""

NEVER = (
    "use_sim_time is true, but nothing was ever heard on /clock: all stamps are 0, and no input is taken for fresh; "
    "start what publishes /clock, or set use_sim_time to false"
)
STOPPED = (
    f"/clock has stood still for more than {STOPPED_S:g} s: the simulation is paused or gone, and until it goes on no "
    "input is taken for fresh"
)


class ClockPace:
    """Judges the last whole window; ``fault`` says what is wrong and what to do, "" where nothing is."""

    def __init__(self) -> None:
        self.fault = ""
        self._new: tuple[int, float] | None = None  # the time that stands now, ns, and when it was first read (steady)
        self._begin: tuple[int, float] | None = None
        self._stood_s = 0.0

    def restart(self) -> None:
        """Begin a window anew: the clock has jumped, or nobody read it for a while."""
        self._new = self._begin = None
        self._stood_s = 0.0

    def saw(self, ros_ns: int, now: float) -> None:
        """Take in a reading; 0 is a clock that has not begun."""
        if self._new is not None and ros_ns == self._new[0]:
            stood_s = now - self._new[1]
            self._stood_s = max(self._stood_s, stood_s)
            if stood_s > STOPPED_S:
                self.fault = STOPPED if ros_ns else NEVER
            return
        known, self._new = self._new, (ros_ns, now)
        if known is None or ros_ns == 0:
            return
        stopped = self.fault in (NEVER, STOPPED)
        if stopped:
            self.fault = ""
        if stopped or self._begin is None:  # it goes
            self._begin, self._stood_s = self._new, 0.0
        elif now - self._begin[1] >= WINDOW_S:
            self.fault = self._judged((ros_ns - self._begin[0]) * 1e-9 / (now - self._begin[1]))
            self._begin, self._stood_s = self._new, 0.0

    def _judged(self, rate: float) -> str:
        if abs(rate - 1.0) > RATE:
            return (
                f"/clock runs at {rate:.2f} of real time, and plans are executed in real time: to the simulation they "
                "are too fast or too slow by that; run it at 1.0"
            )
        if self._stood_s > STANDS_S:
            return (
                f"/clock stands still for {1e3 * self._stood_s:.0f} ms at a time, and all stamps with it: commands are "
                "executed in jerks; publish it at 50 Hz or more"
            )
        return ""
