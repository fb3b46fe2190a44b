"""The policy's pulse: 20 Hz from a thread of its own, whatever the rest of the process is busy with."""

import threading
from collections.abc import Callable

PERIOD_S = 0.05


class Heartbeat:
    """Calls ``beat(status())`` every 50 ms, and at once when ``now`` is called."""

    def __init__(self, status: Callable[[], str], beat: Callable[[str], None], period_s: float = PERIOD_S):
        self._status = status
        self._beat = beat
        self._period_s = period_s
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def now(self) -> None:
        """Beat without waiting for the next turn: something has changed."""
        self._wake.set()

    def stop(self) -> None:
        """End it."""
        self._stopping = True
        self._wake.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._stopping:
            self._beat(self._status())
            self._wake.wait(self._period_s)
            self._wake.clear()
