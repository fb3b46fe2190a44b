"""Write a rosbag2 (MCAP) of everything that a decision depended on.

Records every topic of the domain as it appears (cameras, joint states, requests, chunks, plans, commands, states,
traces), without decoding: the bytes that DDS delivered go to the bag, each with the time at which DDS received it.
`vla replay` and `vla report` read the result, and so does every rosbag2 tool.
"""

import argparse
import importlib
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from vla_runtime.errors import UserError

# Not what a decision depends on, and on some robots the loudest topics there are.
NEVER = r"/(rosout|parameter_events)$|/_"
IMAGE_TYPES = {"sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"}
LOOK_FOR_TOPICS_S = 0.25
WRITER_PRIORITY = 10


class Recorder:
    """Subscribes to topics as they appear and writes what arrives.

    Args:
        node: an rclpy node; somebody else spins it.
        folder: the bag's directory; must not exist yet.
        include, exclude: regular expressions over full topic names.
        image_hz: at most so many images a second of each camera; 0 for all.
    """

    def __init__(self, node, folder: Path, include: str = "", exclude: str = "", image_hz: float = 0.0):
        if folder.exists():
            raise UserError(f"the bag '{folder}' exists already; name another folder, or remove it")
        self._node = node
        self._include, self._exclude = re.compile(include), re.compile(exclude or r"$^")
        self._image_gap_ns = int(1e9 / image_hz) if image_hz > 0 else 0
        self._types = get_typestore(Stores.ROS2_KILTED)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self._subscriptions: dict[str, object] = {}
        self.counts: dict[str, int] = {}
        self.skipped: dict[str, str] = {}
        self._look()
        node.create_timer(LOOK_FOR_TOPICS_S, self._look)

    def _look(self) -> None:
        for topic, type_names in self._node.get_topic_names_and_types():
            wanted = self._include.search(topic) and not self._exclude.search(topic) and not re.search(NEVER, topic)
            if not wanted or topic in self._subscriptions or topic in self.skipped:
                continue
            publishers = self._node.get_publishers_info_by_topic(topic)
            if not publishers:
                continue  # somebody only listens so far
            if type_names[0] not in self._types.types:
                self.skipped[topic] = type_names[0]
                self._node.get_logger().warning(f"{topic} is not recorded: its type {type_names[0]} is not known here")
                continue
            self._subscribe(topic, type_names[0], publishers)

    def _subscribe(self, topic: str, type_name: str, publishers: list) -> None:
        profile = _profile_that_matches(publishers)
        connection = self._writer.add_connection(
            topic, type_name, typestore=self._types, offered_qos_profiles=[_for_the_bag(profile)]
        )
        gap_ns = self._image_gap_ns if type_name in IMAGE_TYPES else 0
        last_ns = 0
        self.counts[topic] = 0

        def write(data: bytes, info: dict) -> None:
            nonlocal last_ns
            received_ns = info["received_timestamp"]
            # Messages from before we came may arrive after newer ones: only a thinned topic is held to an order.
            if gap_ns and received_ns - last_ns < gap_ns:
                return
            last_ns = received_ns
            self._writer.write(connection, received_ns, data)
            self.counts[topic] += 1

        self._subscriptions[topic] = self._node.create_subscription(
            _message_class(type_name), topic, write, profile, raw=True
        )

    def close(self) -> None:
        """Write the bag's index and metadata; without this the bag has no end."""
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._writer.close()


def _message_class(type_name: str):
    package, _, name = type_name.split("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def _profile_that_matches(publishers: list):
    """Ask for no more than every publisher offers, so that each of them is heard."""
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

    offered = [publisher.qos_profile for publisher in publishers]
    reliable = all(profile.reliability == ReliabilityPolicy.RELIABLE for profile in offered)
    latched = all(profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for profile in offered)
    return QoSProfile(
        depth=100,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def _for_the_bag(profile) -> Qos:
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    reliable = profile.reliability == ReliabilityPolicy.RELIABLE
    latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
    forever = QosTime(2147483647, 4294967295)
    return Qos(QosHistory.KEEP_LAST, profile.depth, QosReliability.RELIABLE if reliable else QosReliability.BEST_EFFORT,
               QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE, forever, forever,
               QosLiveliness.AUTOMATIC, forever, False)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla record``."""
    parser.add_argument("out", type=Path, metavar="FOLDER", help="the bag to write; must not exist yet")
    parser.add_argument("--topics", default="", metavar="REGEX", help="only topics that match (default: all)")
    parser.add_argument("--exclude", default="", metavar="REGEX", help="but not these")
    parser.add_argument("--image-hz", type=float, default=0.0, metavar="HZ",
                        help="at most so many images a second of each camera (default: all)")  # fmt: skip
    parser.add_argument("--realtime-priority", type=int, default=0, metavar="N",
                        help="SCHED_FIFO priority of the threads that note the times of arrival, so that a busy machine "
                        "does not delay them (default: 0, normal)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="do not say what was recorded")


def run(args: argparse.Namespace) -> int:
    """Record until Ctrl-C."""
    import rclpy
    from rclpy.executors import ExternalShutdownException

    from vla_runtime.nodes.realtime import own_thread_realtime

    for option in (args.topics, args.exclude):
        try:
            re.compile(option)
        except re.error as error:
            raise UserError(f"'{option}' is not a regular expression: {error}") from error
    # Before DDS makes its threads: they inherit it, and they are what notes the time of arrival.
    refusal = own_thread_realtime(args.realtime_priority) if args.realtime_priority else ""
    if refusal and not args.quiet:
        print(f"vla record: {refusal}", file=sys.stderr)
    rclpy.init(signal_handler_options=rclpy.SignalHandlerOptions.NO)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    node = rclpy.create_node("vla_record")
    if args.realtime_priority and not refusal:  # writing must not keep the threads of DDS, or anything else, waiting
        own_thread_realtime(min(args.realtime_priority, WRITER_PRIORITY))
    recorder = Recorder(node, args.out, args.topics, args.exclude, args.image_hz)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)
    # A terminal and a launch both send Ctrl-C: the second must not cut off the bag's end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    recorder.close()
    node.destroy_node()
    rclpy.try_shutdown()
    if not args.quiet:
        for topic, count in sorted(recorder.counts.items()):
            print(f"{count:8d}  {topic}")
    if not any(recorder.counts.values()):
        print(f"nothing was recorded: no topic of this domain matched '{args.topics or '.*'}'", file=sys.stderr)
        return 1
    return 0
