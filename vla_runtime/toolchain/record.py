"""Write a rosbag2 (MCAP) of everything that a decision depended on.

Records every topic of the domain as it appears (cameras, joint states, requests, chunks, plans, commands, states,
traces), without decoding: the bytes that DDS delivered go to the bag, each with the time at which DDS received it.
`vla replay` and `vla report` read the result, and so does every rosbag2 tool.
"""

import argparse
import importlib
import math
import re
import shutil
import signal
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rosbags.interfaces import Connection, Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from vla_runtime.errors import UsageError, UserError
from vla_runtime.toolchain.options import at_least

if TYPE_CHECKING:
    from vla_runtime.nodes.inputs import PolledInput

# Not what a decision depends on, and on some robots the loudest topics there are.
NEVER = r"/(rosout|parameter_events)$|/_"
IMAGE_TYPES = {"sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"}
LOOK_FOR_TOPICS_S = 0.25
POLL_S = 0.05
STREAMS = re.compile(r"/(planned|joint)_trajectory$")
"""Topics whose writers keep one message and write the next within 20 ms: nothing can be sent again that was lost, and
to acknowledge each would cost the control loops what they are recorded for."""
WRITER_PRIORITY = 10
KEPT_FREE_MB = 200
"""So much of the disk is left: the bag needs some for its index at the end, and the robot's computer for itself."""


class Recorder:
    """Subscribes to topics as they appear and writes what arrives. Everything happens in ``poll``.

    It polls: a callback per message costs rclpy a millisecond, which at 300 messages a second is a third of a core.

    Args:
        node: an rclpy node; nobody needs to spin it.
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
        refuse_a_full_disk(folder.parent)
        self._folder = folder
        self._writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self._topics: dict[str, _Topic] = {}
        self._later: list[tuple[int, _Topic, bytes]] = []
        self._looked_at = -math.inf
        self.counts: dict[str, int] = {}
        self.skipped: dict[str, str] = {}

    def poll(self) -> None:
        """Write what has arrived, in the order of arrival; now and then, look for new topics and at the disk.

        Raises UserError when the disk is full, OSError when the folder is gone; the bag can still be closed.
        """
        if time.monotonic() - self._looked_at >= LOOK_FOR_TOPICS_S:
            self._looked_at = time.monotonic()
            refuse_a_full_disk(self._folder)
            self._look()
        self._write_arrived()

    def _write_arrived(self) -> None:
        # What arrives while the topics are gone through waits for the next time, so that the bag is in order.
        begin_ns = time.time_ns()
        arrived = self._later
        for topic in self._topics.values():
            arrived += [(info["received_timestamp"], topic, data) for data, info in topic.source.take_as_received()]
        arrived.sort(key=lambda item: item[0])
        now = bisect_right(arrived, begin_ns, key=lambda item: item[0])
        self._later = arrived[now:]
        for item in arrived[:now]:
            self._write(*item)

    def _write(self, received_ns: int, topic: "_Topic", data: bytes) -> None:
        # Messages from before we came may arrive after newer ones: only a thinned topic is held to an order.
        if topic.gap_ns and received_ns - topic.last_ns < topic.gap_ns:
            return
        topic.last_ns = received_ns
        self._writer.write(topic.connection, received_ns, data)
        self.counts[topic.source.topic] += 1

    def _look(self) -> None:
        for topic, type_names in self._node.get_topic_names_and_types():
            wanted = self._include.search(topic) and not self._exclude.search(topic) and not re.search(NEVER, topic)
            if not wanted or topic in self._topics or topic in self.skipped:
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
        from rclpy.qos import ReliabilityPolicy

        from vla_runtime.nodes.inputs import PolledInput

        profile = _profile_that_matches(publishers)
        connection = self._writer.add_connection(
            topic, type_name, typestore=self._types, offered_qos_profiles=[_for_the_bag(profile)]
        )
        gap_ns = self._image_gap_ns if type_name in IMAGE_TYPES else 0
        if gap_ns:
            profile.depth = 1  # of the pictures between two that are written, none is fetched
        if STREAMS.search(topic):
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
        self.counts[topic] = 0
        source = PolledInput(self._node, _message_class(type_name), topic, profile, None, raw=True)
        self._topics[topic] = _Topic(source, connection, gap_ns)

    def close(self) -> None:
        """Write the bag's index and metadata; without this the bag has no end."""
        self._write_arrived()
        for item in self._later:
            self._write(*item)
        for topic in self._topics.values():
            topic.source.destroy(self._node)
        self._writer.close()


@dataclass
class _Topic:
    source: "PolledInput"
    connection: Connection
    gap_ns: int
    last_ns: int = 0


def refuse_a_full_disk(folder: Path) -> None:
    """Raise UserError unless ``KEPT_FREE_MB`` are free where ``folder`` is."""
    free_mb = shutil.disk_usage(folder).free / 1e6
    if free_mb < KEPT_FREE_MB:
        raise UserError(
            f"only {free_mb:.0f} MB are free on the disk of '{folder}', and {KEPT_FREE_MB} MB are kept free: "
            "make room, or record on another disk"
        )


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
        depth=200,  # all that is kept of a trace for those who come late
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
                        help="SCHED_FIFO priority of the threads that note the times of arrival, so that a busy "
                        "machine does not delay them (default: 0, normal)")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="do not say what was recorded")


def run(args: argparse.Namespace) -> int:
    """Record until Ctrl-C."""
    import rclpy

    from vla_runtime.nodes.realtime import own_thread_realtime

    at_least(args, image_hz=0, realtime_priority=0)
    for option in (args.topics, args.exclude):
        try:
            re.compile(option)
        except re.error as error:
            raise UsageError(f"'{option}' is not a regular expression: {error}") from error
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
    ended = ""
    try:
        while True:
            recorder.poll()
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        pass
    except (UserError, OSError) as error:  # what was recorded until then is still worth having
        ended = str(error)
        print(f"vla record: the recording ends here: {ended}", file=sys.stderr)
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
    return 1 if ended else 0
