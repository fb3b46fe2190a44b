"""Runs one node as a process: signals first, spinning in the main thread, an orderly end.

SIGINT and SIGTERM wake a thread of their own through a pipe, so that they are obeyed at once even while the main
thread loads a model or waits for messages, and so that nothing is torn down under a running tick.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from vla_runtime.errors import UserError
from vla_runtime.nodes.transport import choose_no_type_lookup, choose_udp

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_WISH_S = 1.0
_MAX_ERRORS_IN_A_ROW = 100
"""A callback that fails again and again is a broken process: better to end it and have it respawned."""


class Runnable(Node):
    """A node that ``run`` runs."""

    fatal = ""
    """Why the process must end with an error; set it at any time."""

    callback_errors = 0
    """Exceptions of callbacks; ``run`` counts them here."""

    def leave(self) -> None:
        """Go down in order. Called when nothing spins any more, before the node is destroyed."""


def run_control(make_node: Callable[[], Runnable], args: list[str] | None = None) -> int:
    """As ``run``, for a process with a control loop: by UDP, unless the user has chosen otherwise."""
    choose_udp(os.environ)
    return run(make_node, args)


def run(make_node: Callable[[], Runnable], args: list[str] | None = None) -> int:
    """Make the node, spin it until SIGINT or SIGTERM, let it leave. Returns the exit status."""
    stop = threading.Event()
    wake: list[Callable[[], None]] = []
    _catch_signals(stop, wake)

    choose_no_type_lookup(os.environ)
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = make_node()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 1
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    wake.append(executor.wake)
    try:
        status = _spin(node, executor, stop)
    finally:
        node.leave()
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.try_shutdown()
    if status:
        # A thread that hangs in a library must not keep a broken process alive.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _spin(node: Runnable, executor: SingleThreadedExecutor, stop: threading.Event) -> int:
    errors = 0
    while not stop.is_set() and not node.fatal:
        try:
            executor.spin_once()
            errors = 0
        except ExternalShutdownException:
            return 0
        except Exception:
            # rclpy lets an exception of any callback end the process. A fault in a report must not stop an arm.
            errors += 1
            node.callback_errors += 1
            node.get_logger().error("exception in a callback:\n" + traceback.format_exc())
            if errors >= _MAX_ERRORS_IN_A_ROW:
                node.get_logger().fatal(f"{errors} callbacks in a row failed: giving up")
                return 1
    return 1 if node.fatal else 0


def _catch_signals(stop: threading.Event, wake: list[Callable[[], None]]) -> None:
    """Have signals set ``stop`` and call what is in ``wake``; the second one ends the process on the spot.

    Python's own handlers run in the main thread, and only when it comes back from C: here the pipe is what counts.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: None)
    threading.Thread(target=_obey, args=(reader, stop, wake), name="signals", daemon=True).start()


def _obey(reader: int, stop: threading.Event, wake: list[Callable[[], None]]) -> None:
    os.read(reader, 1)
    stop.set()
    for each in wake:
        each()
    # One Ctrl-C may come twice, from the terminal and from a launch process.
    time.sleep(_SAME_WISH_S)
    os.set_blocking(reader, False)
    with contextlib.suppress(BlockingIOError):
        os.read(reader, 1024)
    os.set_blocking(reader, True)
    os.read(reader, 1)
    # Asked twice: leave now. The last trajectory sent ends at rest by itself.
    os._exit(130)
