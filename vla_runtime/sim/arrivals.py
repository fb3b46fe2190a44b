"""Writes down when each message of the command stream arrives: the observer of tests and benches, in real time.

`python -m vla_runtime.sim.arrivals --ros-args -p topics:="['joint_trajectory']" -p out:=arrivals.jsonl`

One JSON line per message: `topic`, `at` (steady seconds of the arrival in DDS), `id` (frame_id), `stamp_ns`, `end_s`
(time of the last point, 0 without points), `rest` (whether it ends at velocity exactly 0), `finite`, `q` and `v` (first
point; empty where there is none).
"""

import json
import sys
from pathlib import Path

import numpy as np
from rcl_interfaces.msg import ParameterDescriptor
from rclpy.qos import QoSProfile
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.errors import UserError
from vla_runtime.nodes.inputs import PolledInput
from vla_runtime.nodes.loop import ControlLoop
from vla_runtime.nodes.messages import read_table, read_times, stamp_ns
from vla_runtime.nodes.process import Runnable, run_control

POLL_S = 0.01
DEPTH = 200


class Arrivals(Runnable):
    """Polls the topics; DDS itself notes the arrival."""

    def __init__(self) -> None:
        super().__init__("arrivals")
        read_only = ParameterDescriptor(read_only=True)
        topics = self.declare_parameter("topics", ["joint_trajectory"], read_only).value
        path = self.declare_parameter("out", "arrivals.jsonl", read_only).value
        priority = self.declare_parameter("realtime_priority", 60, read_only).value
        try:
            self._out = Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"out = '{path}' cannot be written: {error}") from None
        self._inputs = [
            PolledInput(self, JointTrajectory, topic, QoSProfile(depth=DEPTH), self.get_logger().warning)
            for topic in topics
        ]
        self._loop = ControlLoop(
            self._poll, POLL_S, name="arrivals", priority=priority, on_error=self.get_logger().error
        )  # fmt: skip
        self._loop.start()
        self.get_logger().info(self._loop.realtime_refusal or "real-time priority")

    def _poll(self, now: float) -> None:
        for source in self._inputs:
            for at, message in source.take():
                record = {"topic": source.topic, "at": at, **describe(message)}
                self._out.write(json.dumps(record) + "\n")
        self._out.flush()

    def leave(self) -> None:
        """Finish the file."""
        self._loop.stop()
        self._poll(0.0)
        self._out.close()


def describe(message: JointTrajectory) -> dict:
    """What is worth knowing about one trajectory."""
    positions = read_table(message, "positions")
    moving = bool(message.points) and len(message.points[0].velocities) > 0
    velocities = read_table(message, "velocities") if moving else np.zeros((0, 0))
    return {
        "id": message.header.frame_id,
        "stamp_ns": stamp_ns(message.header.stamp),
        "end_s": float(read_times(message)[-1]) if message.points else 0.0,
        "rest": moving and not velocities[-1].any(),
        "finite": bool(np.isfinite(positions).all() and np.isfinite(velocities).all()),
        "q": positions[0].tolist() if len(positions) else [],
        "v": velocities[0].tolist() if moving else [],
    }


def main(args: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM."""
    return run_control(Arrivals, args)


if __name__ == "__main__":
    sys.exit(main())
