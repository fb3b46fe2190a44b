"""Writes a rehearsed run as a bag with the topics of a real one, so that `vla report` and other tools can show it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from vla_runtime.control.trajectory import JointSample
from vla_runtime.errors import UserError
from vla_runtime.toolchain.replay.rehearsal import Rehearsed

if TYPE_CHECKING:
    from vla_runtime.toolchain.replay.setting import Stage

NANO = 1_000_000_000
STATE_EVERY = 25
"""Ticks between two states that did not change: twice a second, as the node says them."""

STORE = get_typestore(Stores.ROS2_KILTED)
TRAJECTORY, JOINTS = "trajectory_msgs/msg/JointTrajectory", "sensor_msgs/msg/JointState"
STATUS = "diagnostic_msgs/msg/DiagnosticStatus"
LEVELS = {"NOMINAL": 0, "TELEOP": 0, "FALLBACK": 2, "FAULT": 2}


def write_rehearsal(out: Path, run: Rehearsed, source: Path, stage: "Stage") -> None:
    """Write decisions and inputs; pictures and the instruction are copied from the source bag.

    Raises UserError if the folder exists.
    """
    if out.exists():
        raise UserError(f"the bag '{out}' exists already; name another folder, or remove it")
    rows: list[tuple[int, str, str, bytes]] = []
    names = stage.limits.joint_names

    def add(t: float, topic: str, kind: str, message) -> None:
        rows.append((stage.start_ns + round(t * NANO), topic, kind, STORE.serialize_cdr(message, kind)))

    def trajectory(t, frame, joints, times, positions, velocities):
        return _trajectory(stage.start_ns + round(t * NANO), frame, joints, times, positions, velocities)

    for each, topic in ((run.commands, "/joint_trajectory"), (run.planned, "/planned_trajectory")):
        for item in each:
            message = trajectory(item.start, item.plan_id, names, item.times, item.positions, item.velocities)
            add(item.start, topic, TRAJECTORY, message)
    for request in run.requests:
        message = trajectory(request.stamp, request.request_id, names, request.times, request.positions, None)
        add(request.stamp, "/plan_request", TRAJECTORY, message)
    for answer in run.answers:
        times = answer.dt * np.arange(answer.horizon)
        message = trajectory(answer.t0, answer.request_id, answer.joint_names, times, answer.positions, None)
        add(answer.received, "/action_chunk", TRAJECTORY, message)
    for sample in run.joints:
        add(sample.t, "/joint_states", JOINTS, _joints(stage.start_ns + round(sample.t * NANO), names, sample))
    _states(run, add)
    kept = {*stage.mapping.cameras.values(), stage.mapping.instruction}
    with AnyReader([source], default_typestore=STORE) as reader:
        for connection, received_ns, raw in reader.messages(
            connections=[c for c in reader.connections if c.topic in kept]
        ):
            rows.append((received_ns, connection.topic, connection.msgtype, bytes(raw)))
    rows.sort(key=lambda row: row[0])
    with Writer(out, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections: dict[str, object] = {}
        for t, topic, kind, data in rows:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[topic], t, data)


def _states(run: Rehearsed, add) -> None:
    types = STORE.types
    make, pair = types[STATUS], types["diagnostic_msgs/msg/KeyValue"]
    since = 0.0
    for i, decision in enumerate(run.decisions):
        change = decision.transition
        if change is not None:
            since = change.at
        end = i == len(run.decisions) - 1
        if change is None and i % STATE_EVERY and not end:
            continue
        values = {"cause": decision.cause, "in_command": decision.in_command, "since": f"{since:.3f}"}
        if end:
            values |= {f"missed.{stage}": str(count) for stage, count in run.missed.items()}
            values |= {f"refused.{reason}": str(count) for reason, count in run.refused.items()}
        t = change.at if change is not None else run.joints[i].t
        state = str(decision.state)
        pairs = [pair(key=key, value=value) for key, value in values.items()]
        add(t, "/watchdog/state", STATUS, make(level=LEVELS.get(state, 1), name="watchdog", message=state,
                                                hardware_id="", values=pairs))  # fmt: skip


def _header(stamp_ns: int, frame: str):
    types = STORE.types
    sec, nanosec = divmod(stamp_ns, NANO)
    return types["std_msgs/msg/Header"](
        stamp=types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec), frame_id=frame
    )


def _trajectory(stamp_ns: int, frame: str, names, times, positions, velocities):
    types, none = STORE.types, np.zeros(0)
    point, duration = types["trajectory_msgs/msg/JointTrajectoryPoint"], types["builtin_interfaces/msg/Duration"]
    points = []
    for i, t in enumerate(times):
        sec, nanosec = divmod(round(float(t) * NANO), NANO)
        points.append(
            point(
                positions=np.array(positions[i], float),
                velocities=none if velocities is None else np.array(velocities[i], float),
                accelerations=none,
                effort=none,
                time_from_start=duration(sec=sec, nanosec=nanosec),
            )
        )
    return types[TRAJECTORY](header=_header(stamp_ns, frame), joint_names=list(names), points=points)


def _joints(stamp_ns: int, names, sample: JointSample):
    return STORE.types[JOINTS](
        header=_header(stamp_ns, ""),
        name=list(names),
        position=np.array(sample.position, float),
        velocity=np.array(sample.velocity, float),
        effort=np.zeros(0),
    )
