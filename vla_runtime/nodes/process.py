"""Runs one node as a process: signals first, spinning in the main thread, an orderly end.

SIGINT and SIGTERM are blocked everywhere and received by a thread of their own, so that they are obeyed at once
even while the main thread loads a model, and so that nothing is torn down under a running tick.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from vla_runtime.errors import UserError
from vla_runtime.nodes.lifecycle import ManagedNode

_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_MAX_ERRORS_IN_A_ROW = 100
"""A callback that fails again and again is a broken process: better to end it and have it respawned."""


def run(make_node: Callable[[], ManagedNode], args: list[str] | None = None) -> int:
    """Make the node, spin it until SIGINT or SIGTERM, let it leave. Returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    stop = threading.Event()
    wake: list[Callable[[], None]] = []
    threading.Thread(target=_obey_signals, args=(stop, wake), name="signals", daemon=True).start()

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
    return status


def _spin(node: ManagedNode, executor: SingleThreadedExecutor, stop: threading.Event) -> int:
    errors = 0
    while not stop.is_set():
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
    return 0


def _obey_signals(stop: threading.Event, wake: list[Callable[[], None]]) -> None:
    signal.sigwait(_SIGNALS)
    stop.set()
    for each in wake:
        each()
    signal.sigwait(_SIGNALS)
    # Asked twice: leave now. The last trajectory sent ends at rest by itself.
    os._exit(130)
