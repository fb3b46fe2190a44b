"""Is the arm in good hands? One line, and an exit status for a health check.

Exit 0: the policy or an operator drives the arm, or holds it. Exit 1: anything else, with the reason; also when
nobody answers within the timeout, or DDS keeps us from ending.
"""

import argparse
import time
from collections.abc import Callable, Mapping

from vla_runtime.toolchain.bounded import in_domain
from vla_runtime.toolchain.options import at_least, ros_names

HEALTHY = ("NOMINAL", "COASTING", "HOLD", "TELEOP")
WAITING = ("WARMUP", "INACTIVE")


def judge(state: str, values: Mapping[str, str], waiting_is_ok: bool = False) -> tuple[bool, str]:
    """Return (healthy, one line for people) for a state of the watchdog and its values."""
    healthy = state in HEALTHY or (waiting_is_ok and state in WAITING)
    text = f"{state}: {values.get('cause') or 'no cause given'} (in command: {values.get('in_command', 'unknown')})"
    return healthy, text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla health``."""
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="how long to wait (default: 5)")
    parser.add_argument("--topic", default="watchdog/state", help="the watchdog's state (default: watchdog/state)")
    parser.add_argument("--namespace", default="", help="namespace of the runtime (default: none)")
    parser.add_argument(
        "--waiting-is-ok", action="store_true", help="count a watchdog that waits for its first plan as healthy"
    )


def run(args: argparse.Namespace) -> int:
    """Ask, print, and return 0 or 1."""
    at_least(args, timeout=0)
    ros_names(args, "namespace", "topic")
    topic = "/".join(part.strip("/") for part in (args.namespace, args.topic) if part)
    return in_domain(args.timeout, "--timeout", lambda: _ask(topic, args.timeout, args.waiting_is_ok))


def _ask(topic: str, timeout_s: float, waiting_is_ok: bool) -> int:
    heard: list = []
    # The first may be old: DDS keeps and resends the last message for a process whose own threads hang.
    watch(topic, heard.append, lambda: len(heard) >= 2, timeout_s)
    if not heard:
        print(f"no answer: nobody publishes {topic} in this domain, or not within {timeout_s:g} s")
        return 1
    last = heard[-1]
    if len(heard) < 2:
        print(f"{last.message}, but that is old: no news within {timeout_s:g} s, the watchdog's process hangs")
        return 1
    healthy, text = judge(last.message, {pair.key: pair.value for pair in last.values}, waiting_is_ok)
    print(text)
    return 0 if healthy else 1


def watch(topic: str, hear: Callable, enough: Callable[[], bool], timeout_s: float) -> None:
    """Listen to a node's latched state until ``enough()`` or the timeout."""
    import rclpy
    from diagnostic_msgs.msg import DiagnosticStatus
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import DurabilityPolicy, QoSProfile

    context = rclpy.Context()
    rclpy.init(context=context)
    try:
        node = rclpy.create_node("vla_health", context=context, enable_rosout=False, start_parameter_services=False)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(DiagnosticStatus, topic, hear, latched)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        end = time.monotonic() + timeout_s
        while not enough() and (left := end - time.monotonic()) > 0:
            executor.spin_once(timeout_sec=min(left, 0.2))
        executor.shutdown()
        node.destroy_node()
    finally:
        context.try_shutdown()
