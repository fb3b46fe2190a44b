"""The robot's limits and named poses, found by path or by the name of a file in config/robots."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from vla_runtime.control.limits import Limits, LimitsError
from vla_runtime.errors import UserError, brief
from vla_runtime.paths import share

KEYS = ("joints", "named_poses", "controllers", "sources")
TURNS_RAD = 4.0 * math.pi
"""No joint with an end stop turns further than twice either way: a larger limit is one in degrees."""


class RobotFileError(UserError):
    """A robot file that is not there or cannot be right."""


@dataclass(frozen=True)
class Robot:
    """What is known about a robot: limits in the controller's order of joints, poses by name (rad by joint).

    ``controllers``: which trajectory controller drives which joints; empty where one drives them all.
    """

    path: Path
    limits: Limits
    poses: Mapping[str, Mapping[str, float]]
    controllers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def load_robot(robot: str) -> Robot:
    """Load the robot that the parameter ``robot`` names. Raises RobotFileError."""
    path = _find(robot)
    try:
        limits = Limits.from_yaml(path)
    except LimitsError as error:  # names the file
        raise RobotFileError(str(error)) from None
    text = path.read_text(encoding="utf-8")
    _refuse_repeated_keys(path, yaml.compose(text))
    data = yaml.safe_load(text)
    if "joints" in data:  # else all of it is joints
        _refuse_unknown_keys(path, data)
    _refuse_degrees(path, limits)
    poses = data.get("named_poses") or {}
    for name, pose in poses.items() if isinstance(poses, Mapping) else [("named_poses", None)]:
        if not isinstance(pose, Mapping) or not all(isinstance(v, (int, float)) for v in pose.values()):
            raise RobotFileError(f"{path}: named pose '{name}' must map joints to radians, found {pose!r}")
        unknown = sorted(set(pose) - set(limits.joint_names))
        if unknown:
            raise RobotFileError(
                f"{path}: named pose '{name}' names unknown joint {', '.join(unknown)}; "
                f"there are {', '.join(limits.joint_names)}"
            )
        _refuse_outside(path, name, pose, limits)
    return Robot(path, limits, poses, _controllers(path, data.get("controllers") or {}, limits.joint_names))


def _refuse_repeated_keys(path: Path, node: yaml.Node) -> None:
    """YAML keeps the last of two equal keys without a word: a joint written twice would lose another."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.value in seen:
            raise RobotFileError(
                f"{path}: '{key.value}' is given twice, in lines {seen[key.value]} and {line}; rename one"
            )
        seen[key.value] = line
        _refuse_repeated_keys(path, value)


def _refuse_unknown_keys(path: Path, data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in KEYS:
            near = get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(KEYS)}"
            raise RobotFileError(f"{path}: unknown key '{key}'; {hint}")


def _refuse_degrees(path: Path, limits: Limits) -> None:
    for name, lower, upper in zip(limits.joint_names, limits.lower, limits.upper):
        for key, value in (("lower", lower), ("upper", upper)):
            if math.isfinite(value) and abs(value) > TURNS_RAD:
                raise RobotFileError(
                    f"{path}: {name}: {key} {value:g} looks like degrees; write radians "
                    f"({brief(math.radians(value))}), or 'continuous: true' without it for a joint that turns without "
                    "end"
                )


def _refuse_outside(path: Path, pose: str, joints: Mapping[str, float], limits: Limits) -> None:
    for joint, value in joints.items():
        i = limits.index(joint)
        if abs(value) > TURNS_RAD:
            raise RobotFileError(
                f"{path}: named pose '{pose}' has {joint} at {value:g}, which looks like degrees; "
                f"write radians ({brief(math.radians(value))})"
            )
        if not limits.lower[i] <= value <= limits.upper[i]:
            raise RobotFileError(
                f"{path}: named pose '{pose}' has {joint} at {value:g} rad, outside its limits of "
                f"{limits.lower[i]:g} to {limits.upper[i]:g}"
            )


def _controllers(path: Path, given: Any, joints: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not all(isinstance(value, list) for value in given.values()):
        raise RobotFileError(f"{path}: controllers must map each controller to the list of its joints, got {given!r}")
    named = [str(joint) for value in given.values() for joint in value]
    for joint in named:
        if joint not in joints:
            raise RobotFileError(f"{path}: controllers name an unknown joint '{joint}'; there are {', '.join(joints)}")
        if named.count(joint) > 1:
            raise RobotFileError(f"{path}: joint '{joint}' has two controllers; one must be its only one")
    left = [joint for joint in joints if joint not in named]
    if named and left:
        raise RobotFileError(f"{path}: no controller drives {', '.join(left)}; add it to one under controllers")
    return {str(name): tuple(map(str, value)) for name, value in given.items()}


def _find(robot: str) -> Path:
    names = sorted(path.stem for path in share("config", "robots").glob("*.yaml"))
    if not robot:
        raise RobotFileError(
            f"parameter robot is empty: give a YAML file with the joints' limits, or one of {', '.join(names)}"
        )
    path = Path(robot).expanduser()
    if path.is_file():
        return path
    if robot in names:
        return share("config", "robots", f"{robot}.yaml")
    raise RobotFileError(f"robot = '{robot}': no such file, and config/robots has only {', '.join(names)}")
