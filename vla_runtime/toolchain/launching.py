"""What the launch files share: a node that is respawned with a growing delay, and arguments that are lists.

`launch` itself respawns after a fixed delay, for ever: a node that cannot live then loads its model again each second.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from launch.action import Action
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction, RegisterEventHandler, TimerAction
from launch.event_handlers import OnProcessExit
from launch_ros.actions import Node

from launch import LaunchContext
from vla_runtime.errors import UserError

CALM_S = 60.0
"""A node that lived this long died of something new: the delay begins at its first value again."""


class Backoff:
    """How long to wait before the next start: doubles from ``first_s`` to ``longest_s``.

    ``now``: the steady clock, seconds.
    """

    def __init__(self, first_s: float, longest_s: float, now: Callable[[], float] = time.monotonic):
        self._first_s, self._longest_s, self._now = first_s, longest_s, now
        self._next_s = first_s
        self._started = now()

    def started(self) -> None:
        """Note that the node was started."""
        self._started = self._now()

    def delay_s(self) -> float:
        """Return the delay now that it died."""
        if self._now() - self._started >= CALM_S:
            self._next_s = self._first_s
        delay, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return delay


def respawned(make: Callable[[], Node], backoff: Backoff | None) -> list[Action]:
    """Return the actions that start a node and start it again whenever it ends, until the launch itself ends.

    ``make``: makes the node's action anew (an action can be executed once). ``backoff`` None: no second start.
    """
    node = make()
    if backoff is None:
        return [node]
    backoff.started()

    def again(event: Any, context: LaunchContext) -> list[Action] | None:
        if context.is_shutdown:
            return None
        delay = backoff.delay_s()
        text = f"{event.process_name} ended with exit status {event.returncode}; starting it again in {delay:g} s"

        def restart(_context: LaunchContext) -> list[Action]:
            return respawned(make, backoff)

        return [LogInfo(msg=text), TimerAction(period=delay, actions=[OpaqueFunction(function=restart)])]

    return [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=again))]


def argument(name: str, default: str | None, text: str, choices: Sequence[str] | None = None) -> DeclareLaunchArgument:
    """Declare a launch argument; ``default`` None makes it required."""
    return DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)


def pairs(text: str, argument: str) -> dict[str, str]:
    """Read ``front=/camera/image_raw wrist=/wrist/image_raw`` (spaces or commas between). Raises UserError."""
    found: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise UserError(
                f"{argument}: '{word}' is not of the form name=topic, as in {argument}:='front=/cam/image_raw'"
            )
        found[name] = value
    return found


def parameters(default_file: Path, own_file: str, given: Mapping[str, Any]) -> Sequence[Any]:
    """Return a node's ``parameters``: our defaults, then the user's file, then the arguments that are not empty.

    Raises UserError if the user's file is not there (launch would start the node without it).
    """
    files = [str(default_file)]
    if own_file:
        path = Path(own_file).expanduser()
        if not path.is_file():
            raise UserError(f"params_file: there is no file '{own_file}'")
        files.append(str(path))
    return [*files, {name: value for name, value in given.items() if value != ""}]


def truth(text: str, argument: str) -> bool:
    """Read ``true`` or ``false`` as launch does. Raises UserError on anything else."""
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise UserError(f"{argument}: '{text}' is neither true nor false")


def bag_storage(bag: str) -> list[str]:
    """Return how `ros2 bag play` is told the format of a bag: on Humble it takes every bag for SQLite otherwise.

    Empty where the bag does not say. Raises UserError if there is no bag.
    """
    path = Path(bag).expanduser()
    if not path.exists():
        raise UserError(f"bag: there is no bag '{bag}'")
    metadata = path / "metadata.yaml"
    if metadata.is_file():
        about = yaml.safe_load(metadata.read_text(encoding="utf-8"))
        storage = about["rosbag2_bagfile_information"]["storage_identifier"]
    else:
        storage = {".mcap": "mcap", ".db3": "sqlite3"}.get(path.suffix, "")
    return ["--storage", storage] if storage else []
