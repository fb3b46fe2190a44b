"""Checks of DDS between two processes of this machine: round trip, and whether large images arrive whole."""

import argparse
import os
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np

from vla_runtime.toolchain.selftest.result import FAIL, OK, WARN, Result

FRAMES, FRAME_HZ, HEIGHT, WIDTH = 60, 30, 720, 1280
PINGS = 100


def dds(domain: int) -> Result:
    """Talk to an echo in another process; send it 1280x720 frames at 30 Hz by best effort and count what arrives.

    Args:
        domain: a DDS domain in which nothing else speaks.
    """
    environment = {**os.environ, "ROS_DOMAIN_ID": str(domain)}  # transports and range are what is to be tried
    echo = subprocess.Popen([sys.executable, "-m", __spec__.name], env=environment, stdin=subprocess.DEVNULL)
    try:
        round_trips_ms, frames = _talk(domain)
    except TimeoutError as error:
        return Result("DDS", FAIL, str(error), "two processes of this machine do not hear each other: "
                      "check firewall, multicast on lo, ROS_DOMAIN_ID, RMW_IMPLEMENTATION")  # fmt: skip
    finally:
        echo.terminate()
        with suppress(subprocess.TimeoutExpired):
            echo.wait(5)
        echo.kill()
    p50, p99 = np.percentile(round_trips_ms, [50, 99])
    found = f"round trip p50 {p50:.2f} ms, p99 {p99:.2f} ms; {frames} of {FRAMES} frames of 1280x720 arrived"
    figures = {"round_trip_p50_ms": float(p50), "round_trip_p99_ms": float(p99), "frames": frames}
    if frames < FRAMES:
        advice = (
            "large images are lost: set FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA in every process (it needs "
            "ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET), or use compressed images"
        )
        return Result("DDS", WARN, found, advice, figures)
    return Result("DDS", OK, found, figures=figures)


def _talk(domain: int) -> tuple[list[float], int]:
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image
    from std_msgs.msg import Int64

    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node("vla_selftest", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    heard: list[int] = []
    ping = node.create_publisher(Int64, "selftest/ping", 10)
    camera = node.create_publisher(Image, "selftest/image", qos_profile_sensor_data)
    node.create_subscription(Int64, "selftest/pong", lambda message: heard.append(message.data), 10)
    try:
        end = time.monotonic() + 10.0
        while not (ping.get_subscription_count() and camera.get_subscription_count() and heard):
            if time.monotonic() > end:
                raise TimeoutError("no answer from a process of this machine within 10 s")
            ping.publish(Int64(data=0))
            executor.spin_once(0.05)
        round_trips = [_round_trip(executor, ping, heard, Int64, number) for number in range(1, PINGS + 1)]
        frame = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH)
        frame.data.frombytes(bytes(3 * WIDTH * HEIGHT))
        begin = time.monotonic()
        for number in range(FRAMES):
            time.sleep(max(0.0, begin + number / FRAME_HZ - time.monotonic()))
            camera.publish(frame)
        time.sleep(0.3)
        _round_trip(executor, ping, heard, Int64, -1)  # the answer to -1 is the number of frames seen
        return round_trips, heard[-1]
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


def _round_trip(executor, publisher, heard: list[int], message_type, number: int) -> float:
    count, begin = len(heard), time.monotonic()
    publisher.publish(message_type(data=number))
    while len(heard) == count or (number > 0 and heard[-1] != number):
        if time.monotonic() - begin > 2.0:
            raise TimeoutError(f"ping {number} was not answered within 2 s")
        executor.spin_once(0.5)
    return (time.monotonic() - begin) * 1e3


def main() -> None:
    """Be the echo: answer pings, count frames, say the count when asked with -1."""
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image
    from std_msgs.msg import Int64

    rclpy.init()
    node = rclpy.create_node("vla_selftest_echo")
    frames: list[int] = []
    pong = node.create_publisher(Int64, "selftest/pong", 10)
    node.create_subscription(
        Image, "selftest/image", lambda message: frames.append(message.width), qos_profile_sensor_data
    )

    def answer(message: Int64) -> None:
        pong.publish(Int64(data=message.data if message.data >= 0 else len(frames)))

    node.create_subscription(Int64, "selftest/ping", answer, 10)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    argparse.ArgumentParser(description=main.__doc__).parse_args()
    main()
