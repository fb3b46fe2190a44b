"""Publishes moving test pictures on camera topics: for trying the nodes without a renderer or a camera.

`python -m vla_runtime.sim.pattern_cameras --ros-args -p cameras:="['front','wrist']" -p fps:=30.0`
A camera can be frozen (`-p frozen:=wrist`, live): it goes on sending the same picture with the same stamp.
"""

import sys
from array import array

import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from vla_runtime.nodes.process import Runnable, run


class PatternCameras(Runnable):
    """One picture per camera and period: a bright bar that moves over a gradient."""

    def __init__(self):
        super().__init__("pattern_cameras")
        self.declare_parameter("cameras", ["front", "wrist"])
        self.declare_parameter("fps", 30.0)
        self.declare_parameter("width", 64)
        self.declare_parameter("height", 48)
        self.declare_parameter("frozen", "")
        self.declare_parameter("reliability", "best_effort")
        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy[self._value("reliability").upper()])
        self._images = {name: self.create_publisher(Image, f"{name}/image_raw", qos) for name in self._value("cameras")}
        self._last: dict[str, Image] = {}
        self._count = 0
        self.create_timer(1.0 / self._value("fps"), self._publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _value(self, name: str):
        return self.get_parameter(name).value

    def _publish(self) -> None:
        self._count += 1
        frozen = self._value("frozen")
        for name, publisher in self._images.items():
            if name != frozen or name not in self._last:
                self._last[name] = self._picture(name)
            publisher.publish(self._last[name])

    def _picture(self, name: str) -> Image:
        width, height = self._value("width"), self._value("height")
        pixels = np.empty((height, width, 3), np.uint8)
        pixels[:] = np.linspace(0, 200, width, dtype=np.uint8)[None, :, None]
        pixels[:, self._count % width] = 255
        message = Image(width=width, height=height, encoding="rgb8", step=3 * width)
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = f"{name}_camera"
        message.data = array("B", pixels.tobytes())
        return message


def main(args: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM."""
    return run(PatternCameras, args)


if __name__ == "__main__":
    sys.exit(main())
