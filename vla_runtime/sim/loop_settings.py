"""How closed-loop episodes are run: delays of inference, and what differs from the defaults."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vla_runtime.sim.follower import FollowerSettings
from vla_runtime.sim.task import TIME_LIMIT_S

PERIOD_S = 0.02

Delay = Callable[[float], float]
"""What an inference that took so many seconds here takes in the simulation, s."""


def fixed_delay(ticks: float) -> Delay:
    """Every inference takes so many control periods, whatever it takes here; 0 = an answer within the same period."""
    if not ticks >= 0:
        raise ValueError(f"the delay is {ticks} ticks; it must be 0 or above")
    return lambda _measured_s: ticks * PERIOD_S


def measured_delay(added_ticks: float = 0.0, scale: float = 1.0) -> Delay:
    """Every inference takes what it takes here, times `scale`, plus so many control periods. Not reproducible."""
    return lambda measured_s: measured_s * scale + added_ticks * PERIOD_S


@dataclass(frozen=True)
class LoopSettings:
    """How episodes are run.

    `executor`, `watchdog`: parameters that differ from the tables' defaults. `send_prefix`: whether requests carry the
    committed prefix to the policy (as the nodes do). `fps` of the cameras. `time_limit_s`: when an episode is given
    up. `keep_log`: whether results carry the commanded and measured joints.
    """

    delay: Delay = field(default_factory=lambda: fixed_delay(3))
    executor: dict[str, Any] = field(default_factory=dict)
    watchdog: dict[str, Any] = field(default_factory=dict)
    follower: FollowerSettings = field(default_factory=FollowerSettings)
    robot: str = "so101_sim"
    send_prefix: bool = True
    fps: float = 30.0
    time_limit_s: float = TIME_LIMIT_S
    keep_log: bool = False
