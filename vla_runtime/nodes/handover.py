"""How the control thread and the spinning thread hand work to each other without waiting for each other's luck.

The control thread never logs, and publishes nothing but commands: a log line blocks when the terminal behind it is
stopped, and an arm must not stop for that.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from rclpy.node import Node

LIMIT = 1000
"""Messages that may wait; a thread that says more than this has a fault that the first thousand lines show."""


class Outbox:
    """Work for the spinning thread, posted from any thread; runs in order."""

    def __init__(self, node: Node):
        self._waiting: deque[Callable[[], None]] = deque(maxlen=LIMIT)
        self._guard = node.create_guard_condition(self.deliver)

    def post(self, work: Callable[[], None]) -> None:
        """Have ``work`` run in the spinning thread soon. Never blocks."""
        self._waiting.append(work)
        self._guard.trigger()

    def deliver(self) -> None:
        """Run what waits (called by the executor; by hand when nothing spins any more)."""
        while self._waiting:
            self._waiting.popleft()()


class Inbox:
    """Questions to the control thread, asked by the spinning thread (services), answered between two ticks."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[float], Any], threading.Event, list[Any]]] = deque()

    def ask(self, question: Callable[[float], Any], timeout_s: float) -> Any:
        """Have ``question(now)`` run in the control thread and return its result.

        Raises TimeoutError when the control thread did not get to it; it will not run then.
        """
        done, result = threading.Event(), []
        entry = (question, done, result)
        self._waiting.append(entry)
        if not done.wait(timeout_s):
            try:
                self._waiting.remove(entry)
            except ValueError:  # it is being answered this very moment
                done.wait(timeout_s)
            if not done.is_set():
                raise TimeoutError(f"the control loop did not answer within {timeout_s} s")
        value = result[0]
        if isinstance(value, Exception):
            raise value
        return value

    def answer(self, now: float) -> None:
        """Answer all that waits (called by the control thread at the start of its tick)."""
        while self._waiting:
            question, done, result = self._waiting.popleft()
            try:
                result.append(question(now))
            except Exception as error:  # belongs to the one who asked
                result.append(error)
            done.set()
