"""Two yardsticks for the 50 Hz loop, each run as a process of its own beside the real nodes.

``thread``: a bare thread that sleeps until absolute deadlines, with the priority that the control nodes ask for; it is
what the machine can do. ``timer``: an rclpy timer in a SingleThreadedExecutor that publishes the same message; it is
what a plain node does. Runs for ``--seconds`` or until Ctrl-C, then prints one JSON line:
``{"period_error_p99_ms": ..., "max_gap_ms": ..., "rate_hz": ...}``.
"""

import argparse
import json
import math
import signal
import sys
import time
from contextlib import suppress

import numpy as np

PERIOD_S = 0.02
PRIORITY = 50
KEPT = 180_000
"""Instants that are kept, the newest: an hour."""


class Instants:
    """The newest instants (steady s), all their memory taken at the start."""

    def __init__(self, kept: int = KEPT):
        self._ring = np.full(kept, np.nan)
        self.count = 0

    def add(self, t: float) -> None:
        """Take in one."""
        self._ring[self.count % len(self._ring)] = t
        self.count += 1

    def newest(self) -> np.ndarray:
        """Return those that are kept, oldest first."""
        return self._ring[np.arange(max(0, self.count - len(self._ring)), self.count) % len(self._ring)]


def bare_thread(seconds: float) -> np.ndarray:
    """Sleep to absolute deadlines; return the steady times of waking, s."""
    from vla_runtime.nodes.realtime import own_thread_realtime

    own_thread_realtime(PRIORITY)
    begin = time.monotonic()
    wakings = Instants()
    with suppress(KeyboardInterrupt):
        while wakings.count < seconds / PERIOD_S - 1e-9:
            time.sleep(max(0.0, begin + (wakings.count + 1) * PERIOD_S - time.monotonic()))
            wakings.add(time.monotonic())
    return wakings.newest()


def rclpy_timer(seconds: float) -> np.ndarray:
    """Publish a 25-point trajectory of 6 joints from an rclpy timer; return the steady times of its calls, s."""
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from trajectory_msgs.msg import JointTrajectory

    from vla_runtime.nodes.messages import TrajectoryWriter

    rclpy.init()
    node = rclpy.create_node("timer_yardstick")
    publisher = node.create_publisher(JointTrajectory, "timer_yardstick", 1)
    writer = TrajectoryWriter([f"joint_{i}" for i in range(6)])
    points, times = np.zeros((25, 6)), np.arange(25) * PERIOD_S
    calls = Instants()

    def tick() -> None:
        calls.add(time.monotonic())
        publisher.publish(writer.write(node.get_clock().now().nanoseconds, "", times, points, points))

    node.create_timer(PERIOD_S, tick)
    end = time.monotonic() + seconds
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        while time.monotonic() < end:
            rclpy.spin_once(node, timeout_sec=0.1)
    node.destroy_node()
    rclpy.try_shutdown()
    return calls.newest()


def figures(times: np.ndarray) -> dict[str, float]:
    """Return rate and period errors of a series of instants (s)."""
    periods = np.diff(times)
    return {
        "rate_hz": float(len(periods) / (times[-1] - times[0])),
        "period_error_p50_ms": float(np.median(np.abs(periods - PERIOD_S)) * 1e3),
        "period_error_p99_ms": float(np.percentile(np.abs(periods - PERIOD_S), 99) * 1e3),
        "max_gap_ms": float(periods.max() * 1e3),
    }


def main() -> int:
    """Run one yardstick and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=["thread", "timer"])
    parser.add_argument("--seconds", type=float, default=math.inf)
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    times = (bare_thread if args.which == "thread" else rclpy_timer)(args.seconds)
    print(json.dumps(figures(times)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
