"""What the executor tells operators."""

from collections.abc import Mapping
from typing import Any

from vla_runtime.nodes.diagnostics import Level, Status

_STATE = ("plan", "k", "k_range", "blend", "delay_ms", "requests", "accepted", "refused", "silences", "request_causes")


def state_status(active: bool, in_command: bool, figures: Mapping[str, Any]) -> Status:
    """``executor/state``."""
    values = {"in_command": in_command, **{key: figures[key] for key in _STATE if key in figures}}
    if not active:
        return Status("executor", Level.WARN, "inactive", values)
    silent = figures.get("silent", "")
    if silent:
        return Status("executor", Level.WARN, f"silent: {silent}", values)
    return Status("executor", Level.OK, "planning", values)


def plan_status(figures: Mapping[str, Any], joint_fault: str = "") -> Status:
    """The plan buffer and K as a task of /diagnostics; ``joint_fault``: what is wrong with the joint states."""
    if figures.get("k_unsafe"):
        text = f"k = {figures['k_set']} is unsafe (range {figures['k_range']}); in use: {figures['k']}"
        return Status("plan", Level.WARN, text, figures)
    if figures.get("silent"):
        why = f" ({joint_fault})" if joint_fault else ""
        return Status("plan", Level.WARN, f"nothing to say: {figures['silent']}{why}", figures)
    if figures.get("refused_total"):
        return Status("plan", Level.OK, f"{figures['refused_total']} plans refused so far", figures)
    return Status("plan", Level.OK, "following the plan", figures)
