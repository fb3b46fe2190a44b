"""Show who is in command of the arm, and why: live, over DDS, from any machine in the domain.

It only listens. Ctrl-C ends it; the arm does not notice.
"""

import argparse
import os
import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from vla_runtime.toolchain.bounded import in_domain
from vla_runtime.toolchain.monitor.board import Board
from vla_runtime.toolchain.monitor.render import WIDTH, screen
from vla_runtime.toolchain.options import at_least, ros_names

REFRESH_S = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla monitor``."""
    parser.add_argument("--namespace", default="", help="namespace of the runtime (default: none)")
    parser.add_argument("--once", action="store_true", help="print one screen and end")
    parser.add_argument("--wait", type=float, default=3.0, metavar="S", help="with --once: listen this long first")
    parser.add_argument("--command-topic", default="", metavar="TOPIC",
                        help="topic of the controller (default: what the watchdog says it publishes)")  # fmt: skip
    parser.add_argument("--period", type=float, default=0.02, metavar="S", help="control period (default: 0.02)")


def run(args: argparse.Namespace) -> int:
    """Listen and show. With ``--once``: 1 when nothing was heard, or when DDS keeps us from ending."""
    from vla_runtime.toolchain.monitor.listener import Listener

    at_least(args, wait=0, period=0.001)
    ros_names(args, "namespace", "command_topic")
    if not args.once:
        return _show(args, Listener)
    return in_domain(args.wait, "--wait", lambda: _show(args, Listener))


def _show(args: argparse.Namespace, listener_type: Callable) -> int:
    board = Board(args.period)
    listener = listener_type(board, args.namespace, args.command_topic)
    console = Console()
    title = f"vla monitor  domain {os.environ.get('ROS_DOMAIN_ID', '0')}  namespace /{args.namespace.strip('/')}"

    def look():
        return screen(board.view(time.monotonic(), listener.ros_now()), title, min(console.width, max(WIDTH, 100)))

    try:
        if args.once:
            listener.listen(args.wait)
            console.print(look())
            return 0 if board.view(time.monotonic()).heard else 1
        with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                listener.listen(REFRESH_S)
                live.update(look(), refresh=True)
        return 0
    finally:
        listener.close()
