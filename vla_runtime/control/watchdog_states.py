"""The watchdog's states, the ways between them, and what it returns on every tick."""

from dataclasses import dataclass
from enum import Enum

from vla_runtime.control.trajectory import Trajectory


class State(str, Enum):
    """Who has the arm, and how sure we are."""

    INACTIVE = "INACTIVE"  # not activated: nothing is published
    WARMUP = "WARMUP"  # waiting for the first good plan: nothing is published yet
    NOMINAL = "NOMINAL"  # the policy's plans arrive in time
    COASTING = "COASTING"  # an answer is late; the old plan still has waypoints and is driven on
    FALLBACK = "FALLBACK"  # the fallback planner has the arm
    HOLD = "HOLD"  # an operator has stopped the arm
    TELEOP = "TELEOP"  # an operator drives the arm
    FAULT = "FAULT"  # stopped, and needs a reset

    def __str__(self) -> str:
        return self.value


S = State
# from: {to: on what}
TRANSITIONS: dict[State, dict[State, str]] = {
    S.INACTIVE: {S.WARMUP: "activated"},
    S.WARMUP: {S.NOMINAL: "first good plan", S.TELEOP: "operator drives", S.HOLD: "operator holds"},
    S.NOMINAL: {
        S.COASTING: "an answer is late",
        S.FALLBACK: "one of the five silences",
        S.TELEOP: "operator drives",
        S.HOLD: "operator holds",
    },
    S.COASTING: {
        S.NOMINAL: "the answer came",
        S.FALLBACK: "one of the five silences",
        S.TELEOP: "operator drives",
        S.HOLD: "operator holds",
    },
    S.FALLBACK: {S.NOMINAL: "recovered", S.TELEOP: "operator drives", S.HOLD: "operator holds"},
    S.HOLD: {S.FALLBACK: "operator releases", S.WARMUP: "operator releases, never armed"},
    S.TELEOP: {S.FALLBACK: "operator is done or silent, or the joint states are", S.HOLD: "operator holds"},
    S.FAULT: {S.FALLBACK: "reset", S.WARMUP: "reset, never armed"},
}
for _from, _ways in TRANSITIONS.items():
    if _from is not S.INACTIVE:
        _ways[S.INACTIVE] = "deactivated"
    if _from not in (S.INACTIVE, S.FAULT):
        _ways[S.FAULT] = "a fault that needs a person"

IN_COMMAND: dict[State, str] = {
    S.INACTIVE: "none",
    S.WARMUP: "none",
    S.NOMINAL: "policy",
    S.COASTING: "policy",
    S.FALLBACK: "fallback",
    S.HOLD: "fallback",
    S.TELEOP: "teleop",
    S.FAULT: "fallback",
}


@dataclass(frozen=True)
class Transition:
    """One change of state.

    Attributes:
        at: steady seconds.
        source: the state left.
        target: the state entered.
        cause: why, in words.
        count: how often this pair of states has been passed since the start, this time included.
    """

    at: float
    source: State
    target: State
    cause: str
    count: int


@dataclass(frozen=True)
class Command:
    """What the watchdog decides in one tick.

    Attributes:
        trajectory: what to publish on ``joint_trajectory`` now; None only while no command is due.
        state: the state after this tick.
        cause: why it is in that state, or why nothing is published.
        in_command: ``policy``, ``fallback``, ``teleop`` or ``none``.
        transition: the last change of state since the previous tick, or None.
        flush: the executor must forget its plans: the arm has just gone to an operator or to a fault.
    """

    trajectory: Trajectory | None
    state: State
    cause: str
    in_command: str
    transition: Transition | None = None
    flush: bool = False
