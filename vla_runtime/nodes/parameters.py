"""Tables of parameters as ROS parameters: declared with ranges, refused with reasons, applied between two ticks.

What the control thread reads is one immutable settings object per table; a change that passes swaps the reference.
A value that is wrong at the start (an override) does not end the node: it keeps the default, stays `unconfigured`
and says why, until the parameter is mended.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.errors import UserError

_INT_MAX = 2**63 - 1


class ParameterError(UserError):
    """Parameters that do not allow the node to be configured; the text has every reason."""


class NodeParameters:
    """The parameters of one node. ``tables``: by a name under which the node reads their settings.

    ``extra``: asked before a change is accepted with the name of the table and its new settings; returns a reason
    against it, or None (for rules about what only the running node knows). ``changed``: called after a change.
    """

    def __init__(
        self,
        node: Node,
        tables: Mapping[str, Table],
        *,
        active: Callable[[], bool] = lambda: False,
        extra: Callable[[str, Any], str | None] = lambda table, settings: None,
        changed: Callable[[], None] = lambda: None,
    ):
        self._node = node
        self._tables = dict(tables)
        self._active = active
        self._extra = extra
        self._changed = changed
        self._faults: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._table_of = {parameter.name: name for name, table in tables.items() for parameter in table.parameters}
        if len(self._table_of) != sum(len(table.parameters) for table in tables.values()):
            raise ValueError("two tables of one node share a parameter's name")
        overrides = getattr(node, "_parameter_overrides", {})
        for name, table in self._tables.items():
            self._values[name] = {p.name: self._declare(p, overrides) for p in table.parameters}
        self._warn_of_misspelt(overrides)
        self._settings = {name: self._valid_or_default(name) for name in self._tables}
        self._candidates: dict[str, tuple[dict[str, Any], Any]] = {}  # table: (changed values, settings)
        if hasattr(node, "add_pre_set_parameters_callback"):
            node.add_pre_set_parameters_callback(self._whole_numbers_as_floats)
        node.add_on_set_parameters_callback(self._judge)
        self._swap_at_once = not hasattr(node, "add_post_set_parameters_callback")  # ROS 2 Humble
        if not self._swap_at_once:
            node.add_post_set_parameters_callback(lambda parameters: self._swap())

    def __getitem__(self, table: str) -> Any:
        """The present settings of a table: one reference, replaced as a whole."""
        return self._settings[table]

    def check(self) -> None:
        """Raise ParameterError with every reason why the node cannot run with its parameters as they are."""
        reasons = list(self._faults.values())
        for name, table in self._tables.items():
            result = table.validate(self._values[name])
            if isinstance(result, list):
                reasons += result
            elif reason := self._extra(name, result):
                reasons.append(reason)
        if reasons:
            raise ParameterError("; ".join(reasons))

    def _declare(self, parameter: Parameter, overrides: Mapping[str, RosParameter]) -> Any:
        value = parameter.default
        if parameter.name in overrides:
            given = overrides[parameter.name].value
            if given is None and parameter.type not in (bool, int, float, str):
                given = []  # a file cannot say what an empty list is a list of; `ros2 param dump` writes such lines
            given, reason = parameter.check(given)
            if reason:
                self._faults[parameter.name] = f"{reason} (given at the start; in use: {parameter.default})"
            else:
                value = given
        self._node.declare_parameter(parameter.name, _plain(value), descriptor(parameter), ignore_override=True)
        return value

    def _warn_of_misspelt(self, overrides: Mapping[str, RosParameter]) -> None:
        for name in overrides:
            # rclpy's own are declared (use_sim_time) or have dots (qos_overrides.…).
            if self._node.has_parameter(name) or "." in name:
                continue
            near = get_close_matches(name, list(self._table_of), 1, cutoff=0.8)
            if near or name not in _anybodys():
                hint = f"; did you mean '{near[0]}'?" if near else ""
                self._node.get_logger().warning(f"parameter '{name}' is not known and has no effect{hint}")

    def _valid_or_default(self, name: str) -> Any:
        table = self._tables[name]
        result = table.validate(self._values[name])
        return table.load({}) if isinstance(result, list) else result

    def _whole_numbers_as_floats(self, parameters: Sequence[RosParameter]) -> list[RosParameter]:
        """`ros2 param set /watchdog stream_deadline_s 1` means 1.0."""
        return [
            RosParameter(p.name, value=float(p.value))
            if p.type_ == RosParameter.Type.INTEGER and self._type_of(p.name) is float
            else p
            for p in parameters
        ]

    def _type_of(self, name: str) -> Any:
        table = self._table_of.get(name)
        return self._tables[table][name].type if table else None

    def _judge(self, parameters: Sequence[RosParameter]) -> SetParametersResult:
        changes: dict[str, dict[str, Any]] = {}
        for parameter in parameters:
            table = self._table_of.get(parameter.name)
            if table:  # others are none of our business
                changes.setdefault(table, {})[parameter.name] = parameter.value
        self._candidates = {}
        reasons: list[str] = []
        for name, change in changes.items():
            reasons += self._judge_table(name, change)
        if reasons:
            self._candidates = {}
            return SetParametersResult(successful=False, reason="; ".join(reasons))
        if self._swap_at_once:
            self._swap()
        return SetParametersResult(successful=True)

    def _judge_table(self, name: str, change: dict[str, Any]) -> list[str]:
        table, values = self._tables[name], self._values[name]
        result = table.change(values, change, self._active())
        if isinstance(result, list):
            singles = [reason for key, value in change.items() if (reason := table[key].check(value)[1])]
            if singles or not isinstance(table.validate(values), list) or self._active():
                return result
            # Several values are wrong together (at the start): they must be mended one by one.
            result = self._settings[name]
        elif reason := self._extra(name, result):
            return [reason]
        exact = {key: table[key].check(value)[0] for key, value in change.items()}
        self._candidates[name] = (exact, result)
        return []

    def _swap(self) -> None:
        if not self._candidates:
            return
        for name, (changed, settings) in self._candidates.items():
            self._values[name] = {**self._values[name], **changed}
            self._settings[name] = settings
            for key in changed:
                self._faults.pop(key, None)
        self._candidates = {}
        self._changed()


def _anybodys() -> set[str]:
    """The parameters of all three nodes: one file may set them for all (``/**``)."""
    from vla_runtime.control.executor_settings import EXECUTOR_TABLE
    from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
    from vla_runtime.nodes.tables import CONTROL_NODE, POLICY_NODE

    tables = (EXECUTOR_TABLE, WATCHDOG_TABLE, CONTROL_NODE, POLICY_NODE)
    return {parameter.name for table in tables for parameter in table.parameters}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def descriptor(parameter: Parameter) -> ParameterDescriptor:
    """What `ros2 param describe` shows, and the range that rclpy itself enforces."""
    notes = [parameter.range_text(), "" if parameter.live else "not while active"]
    made = ParameterDescriptor(
        description=parameter.doc + (f" [{parameter.unit}]" if parameter.unit else ""),
        additional_constraints="; ".join(note for note in notes if note),
        dynamic_typing=parameter.type not in (bool, int, float, str),
    )
    low, high = parameter.min, parameter.max
    if parameter.type is float and (low is not None or high is not None):
        limit = sys.float_info.max
        made.floating_point_range = [
            FloatingPointRange(
                from_value=float(-limit if low is None else low), to_value=float(limit if high is None else high)
            )
        ]
    elif parameter.type is int and (low is not None or high is not None):
        made.integer_range = [
            IntegerRange(
                from_value=-_INT_MAX if low is None else int(low), to_value=_INT_MAX if high is None else int(high)
            )
        ]
    return made
