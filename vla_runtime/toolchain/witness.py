"""A witness of the streams in a domain: what arrived, when DDS received it. It stands beside the nodes."""

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory

from vla_runtime.nodes.messages import read_table, read_times, stamp_ns
from vla_runtime.nodes.realtime import own_thread_realtime
from vla_runtime.toolchain.run_log import Motion

PRIORITY = 10
ARRIVAL_PRIORITY = YARDSTICK_PRIORITY = 60  # above the control loops: they note what those do
KEEP = 4000
YARDSTICK_S = 0.01


class Witness:
    """Listens in a thread of its own with real-time priority where that is allowed. Times are ROS seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: list[Motion] = []
        self._chunks: list[Motion] = []
        self._requests: list[Motion] = []
        self._measured: list[tuple[float, dict[str, float]]] = []  # (received, rad by joint)
        self._oversleeps: list[tuple[float, float]] = []
        self._closing = threading.Event()
        self._ready = threading.Event()
        for core in os.sched_getaffinity(0):
            threading.Thread(target=self._watch, args=(core,), name=f"yardstick {core}", daemon=True).start()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        own_thread_realtime(ARRIVAL_PRIORITY)  # before DDS makes its threads, which inherit it
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        node = rclpy.create_node("vla_witness", context=self._context)
        own_thread_realtime(PRIORITY)
        for topic, log in (("joint_trajectory", self._commands), ("action_chunk", self._chunks),
                           ("plan_request", self._requests)):  # fmt: skip
            node.create_subscription(JointTrajectory, topic, self._note(log), QoSProfile(depth=100))
        node.create_subscription(JointState, "joint_states", self._note_measured, QoSProfile(depth=100))
        executor = SingleThreadedExecutor(context=self._context)
        executor.add_node(node)
        self._ready.set()
        with suppress(ExternalShutdownException):
            executor.spin()

    def _watch(self, core: int) -> None:
        """Sleep on one core as a control loop does; how much too long that takes is the machine's doing.

        On each core, since a hypervisor may take one and leave another; above the control loops.
        """
        os.sched_setaffinity(threading.get_native_id(), {core})
        own_thread_realtime(YARDSTICK_PRIORITY)
        while not self._closing.is_set():
            begin = time.monotonic()
            time.sleep(YARDSTICK_S)
            late = time.monotonic() - begin - YARDSTICK_S
            with self._lock:
                self._oversleeps.append((time.time(), late))
                del self._oversleeps[:-KEEP]

    def machine_stall(self, instant: float) -> float:
        """The longest that a bare sleeping thread overslept since an instant, on any core, s."""
        with self._lock:
            return max((late for at, late in self._oversleeps if at >= instant), default=0.0)

    def _note(self, log: list[Motion]):
        def note(message: JointTrajectory, info: dict) -> None:
            velocities = message.points and message.points[0].velocities
            motion = Motion(
                received=info["received_timestamp"] * 1e-9,
                stamp=stamp_ns(message.header.stamp) * 1e-9,
                plan_id=message.header.frame_id,
                joint_names=tuple(message.joint_names),
                times=read_times(message),
                positions=read_table(message, "positions"),
                velocities=read_table(message, "velocities") if velocities else np.zeros((len(message.points), 0)),
            )
            with self._lock:
                log.append(motion)
                del log[:-KEEP]

        return note

    def _note_measured(self, message: JointState, info: dict) -> None:
        with self._lock:
            self._measured.append((info["received_timestamp"] * 1e-9, dict(zip(message.name, message.position))))
            del self._measured[:-KEEP]

    def rest_after(self, instant: float, joints: Collection[str], within_rad: float) -> float:
        """From when on, after an instant, each of ``joints`` stays within ``within_rad`` of where it is measured now.

        Infinite if nothing was measured since. Positions, not velocities: contact makes a joint tremble at rest.
        """
        with self._lock:
            after = [(at, np.array([here[name] for name in joints])) for at, here in self._measured if at >= instant]
        if not after:
            return float("inf")
        final = after[-1][1]
        return max((at for at, here in after if np.abs(here - final).max() > within_rad), default=instant)

    def commands_since(self, instant: float) -> list[Motion]:
        """Commands that arrived since an instant, in order."""
        with self._lock:
            return [command for command in self._commands if command.received >= instant]

    def first_fallback(self, instant: float) -> Motion | None:
        """The first command since an instant that follows no plan of the policy."""
        return next((c for c in self.commands_since(instant) if ":" not in c.plan_id), None)

    def first_open_request(self, instant: float) -> float:
        """When the oldest request went out that no chunk answered before or after ``instant``; infinite if none."""
        with self._lock:
            answered = {chunk.plan_id for chunk in self._chunks}
            recent = [request for request in self._requests if request.received > instant - 1.0]
        return next((request.stamp for request in recent if request.plan_id not in answered), float("inf"))

    def end_of_last_good_plan(self, instant: float) -> float:
        """When the last plan with finite positions ends whose chunk came before the fallback; -infinite if none."""
        fallback = self.first_fallback(instant)
        until = fallback.received if fallback else float("inf")
        with self._lock:
            good = [chunk for chunk in self._chunks if chunk.received < until and np.isfinite(chunk.positions).all()]
        return max((chunk.stamp + chunk.times[-1] for chunk in good), default=float("-inf"))

    def hears_plans(self, now: float) -> bool:
        """Whether a plan was heard that reaches beyond ``now``."""
        with self._lock:
            return any(chunk.stamp + chunk.times[-1] > now for chunk in self._chunks)

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._context.try_shutdown()
        self._thread.join(2.0)
