"""Computes a recorded run's answers again: the same pictures, joints, prefix and noise must give the same actions.

Equal bit for bit only with the engine, the engine's version and the kind of processor of the recording; elsewhere
`vla parity` is the right question.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from vla_runtime.nodes.trace import digest, revive
from vla_runtime.policy.images import decode_compressed, decode_image
from vla_runtime.policy.policy import Observation, Policy, Prefix


@dataclass
class Recomputed:
    """What came of it."""

    answers: int = 0
    equal: int = 0
    without_pictures: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Answers whose pictures are in the bag."""
        return self.answers - self.without_pictures

    @property
    def same(self) -> bool:
        """Whether every answer whose pictures are in the bag was equal."""
        return not self.differences

    def lines(self) -> list[str]:
        """What came of it, for people; of the differences the first three."""
        told = [f"policy: {self.equal} of {self.compared} answers {'equal' if self.same else 'DIFFERENT'}"]
        told += [f"  {difference}" for difference in self.differences[:3]]
        if self.without_pictures:
            told.append(f"policy: {self.without_pictures} answers not compared: not all their pictures are in the bag "
                        "(recorded with --image-hz, as by the demo, or lost)")  # fmt: skip
        return told


def recompute(bag: Path, policy: Policy) -> Recomputed:
    """Ask the policy again what it was asked in the bag (a policy/trace topic)."""
    with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_KILTED)) as reader:
        records = _records(reader)
        pictures = _pictures(reader, {name for record in records for name in record["images"].values()})
    out = Recomputed(answers=len(records))
    for record in records:
        if not all(name in pictures for name in record["images"].values()):
            out.without_pictures += 1
            continue
        observation = Observation(
            t=record["t"],
            images={camera: pictures[name] for camera, name in record["images"].items()},
            state=revive(record["state"], {}),
            instruction=record["instruction"],
        )
        prefix = None if record["prefix"] is None else Prefix(revive(record["prefix"], {}))
        said = digest(policy.infer(observation, prefix, record["count"], record["seed"]).actions)
        if said == record["result"]:
            out.equal += 1
        else:
            out.differences.append(f"answer {record['id']}: recorded {record['result']}, now {said}")
    return out


def _records(reader: AnyReader) -> list[dict[str, Any]]:
    wanted = [c for c in reader.connections if c.topic.endswith("policy/trace")]
    found = []
    for connection, _, raw in reader.messages(connections=wanted) if wanted else ():
        found += [json.loads(line) for line in reader.deserialize(raw, connection.msgtype).data.splitlines()]
    return [record for record in found if record["call"] == "infer"]


def _pictures(reader: AnyReader, wanted: set[str]) -> dict[str, np.ndarray]:
    """The pictures of these digests; one that was used twice is kept once."""
    found: dict[str, np.ndarray] = {}
    cameras = [c for c in reader.connections if c.msgtype.endswith("Image")]
    for connection, _, raw in reader.messages(connections=cameras) if cameras and wanted else ():
        m = reader.deserialize(raw, connection.msgtype)
        if hasattr(m, "format"):
            picture = decode_compressed(m.format, bytes(m.data))
        else:
            picture = decode_image(m.height, m.width, m.encoding, bool(m.is_bigendian), m.step, bytes(m.data))
        name = digest(picture)
        if name in wanted:
            found[name] = picture
    return found
