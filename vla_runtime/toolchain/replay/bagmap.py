"""Which of a bag's topics and joints are what: a YAML file, for bags that this runtime did not write."""

from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from vla_runtime.errors import UserError


@dataclass(frozen=True)
class BagMap:
    """The mapping; every line may be absent.

    joint_states: topic of sensor_msgs/JointState.
    joints: the bag's joint name -> the robot's; names that are absent here are dropped if any are given.
    robot: a robot file, or a name in config/robots; empty: limits are taken from the recording, with a margin.
    actions: topic of sensor_msgs/JointState with the actions that were taken: they are the policy. Empty: a bundle is.
    action_joints: as ``joints``, for the actions; empty: the same.
    cameras: the bundle's camera -> topic (Image or CompressedImage).
    instruction: topic of std_msgs/String.
    discrete: joints that are stepped, not blended (grippers), by the robot's name.
    dt_s, horizon, latency_s: of the actions as a policy: step, length of an answer, time that an answer takes.
    """

    joint_states: str = "/joint_states"
    joints: dict[str, str] = field(default_factory=dict)
    robot: str = ""
    actions: str = ""
    action_joints: dict[str, str] = field(default_factory=dict)
    cameras: dict[str, str] = field(default_factory=dict)
    instruction: str = "/instruction"
    discrete: tuple[str, ...] = ()
    dt_s: float = 0.02
    horizon: int = 50
    latency_s: float = 0.1


def read_bag_map(path: Path) -> BagMap:
    """Read a mapping. Raises UserError with the file, the line's name and what it may be."""
    try:
        data: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the mapping: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected lines such as `joint_states: /joint_states`")
    known = {f.name: f for f in fields(BagMap)}
    for name, value in data.items():
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known are: {', '.join(known)}"
            raise UserError(f"{path}: unknown line '{name}'{hint}")
        expected = type(getattr(BagMap(), name))
        if expected is float and isinstance(value, int):
            data[name] = value = float(value)
        if expected is tuple and isinstance(value, list):
            data[name] = value = tuple(map(str, value))
        if not isinstance(value, expected) or isinstance(value, bool):
            raise UserError(f"{path}: {name} must be a {expected.__name__}, got {value!r}")
    made = BagMap(**data)
    if not made.dt_s > 0 or made.horizon < 2 or made.latency_s < 0:
        raise UserError(f"{path}: dt_s must be above 0, horizon at least 2, latency_s not negative")
    return made
