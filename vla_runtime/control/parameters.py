"""One declarative table of parameters: declaration, validation and the documentation all come from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

Settings = TypeVar("Settings")

Check = Callable[[Mapping[str, Any]], "str | None"]
"""A rule over several values: given all of them, it returns the reason why they do not go together, or None."""

_LISTS: dict[Any, type] = {list[str]: str, list[float]: float, list[int]: int}
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_ROS_TYPES = {bool: "bool", int: "int", float: "double", str: "string"}


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    ``type``: bool, int, float, str, or list[str], list[float], list[int]. ``min`` and ``max`` are inclusive and hold
    for each element of a list; ``choices`` are the values allowed. ``unit``: SI ("s", "rad"), or "". ``live``: may be
    changed while the node is active.
    """

    name: str
    type: Any
    default: Any
    min: float | None = None
    max: float | None = None
    unit: str = ""
    doc: str = ""
    live: bool = True
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.type not in _NAMES and self.type not in _LISTS:
            raise TypeError(f"{self.name}: a parameter cannot be of type {self.type}")
        _, reason = self.check(self.default)
        if reason:
            raise ValueError(f"the default does not pass its own rule: {reason}")

    def check(self, value: Any) -> tuple[Any, str | None]:
        """Return (the value in its exact type, None), or (the value as it came, the reason why it is refused)."""
        element = _LISTS.get(self.type)
        if element is None:
            return self._check_one(value, self.type, self.name)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return value, f"{self.name} must be a list, got {value!r}"
        checked = []
        for i, item in enumerate(value):
            item, reason = self._check_one(item, element, f"{self.name}[{i}]")
            if reason:
                return value, reason
            checked.append(item)
        return tuple(checked), None

    def range_text(self) -> str:
        """Return the allowed values for people: "0.01 to 2 s", "cut, crossfade", or ""."""
        if self.choices:
            return ", ".join(str(choice) for choice in self.choices)
        unit = f" {self.unit}" if self.unit else ""
        if self.min is not None and self.max is not None:
            return f"{self.min:g} to {self.max:g}{unit}"
        if self.min is not None:
            return f"at least {self.min:g}{unit}"
        if self.max is not None:
            return f"at most {self.max:g}{unit}"
        return ""

    def type_text(self) -> str:
        """Return the type as `ros2 param` calls it."""
        element = _LISTS.get(self.type)
        return f"{_ROS_TYPES[element]}[]" if element else _ROS_TYPES[self.type]

    def _check_one(self, value: Any, kind: Any, name: str) -> tuple[Any, str | None]:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            return value, f"{name} must be {_NAMES[kind]}, got {value!r}"
        if kind is float and not math.isfinite(value):
            return value, f"{name} must be finite, got {value}"
        too_low = self.min is not None and kind in (int, float) and value < self.min
        too_high = self.max is not None and kind in (int, float) and value > self.max
        if too_low or too_high:
            return value, f"{name} = {value:g} is outside its range ({self.range_text()})"
        if self.choices and value not in self.choices:
            near = get_close_matches(str(value), [str(choice) for choice in self.choices], 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            return value, f"{name} = {value!r} is not one of: {self.range_text()}{hint}"
        return value, None


@dataclass(frozen=True)
class Table(Generic[Settings]):
    """The parameters of one node and the rules between them.

    ``build`` makes the settings from keyword arguments (a frozen dataclass with a field per parameter). ``checks``
    are asked only when every single value is right.
    """

    title: str
    parameters: tuple[Parameter, ...]
    build: Callable[..., Settings]
    checks: tuple[Check, ...] = ()
    _by_name: dict[str, Parameter] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for parameter in self.parameters:
            if parameter.name in self._by_name:
                raise ValueError(f"{self.title}: parameter '{parameter.name}' stands twice in the table")
            self._by_name[parameter.name] = parameter

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    def defaults(self) -> dict[str, Any]:
        """Return every default by name."""
        return {parameter.name: parameter.default for parameter in self.parameters}

    def validate(self, values: Mapping[str, Any]) -> Settings | list[str]:
        """Return the settings for these values (what is absent takes its default), or every reason against them."""
        checked: dict[str, Any] = {}
        reasons = [self._unknown(name) for name in values if name not in self._by_name]
        for parameter in self.parameters:
            value, reason = parameter.check(values.get(parameter.name, parameter.default))
            checked[parameter.name] = value
            if reason:
                reasons.append(reason)
        if not reasons:
            reasons = [reason for check in self.checks if (reason := check(checked))]
        return reasons or self.build(**checked)

    def load(self, values: Mapping[str, Any]) -> Settings:
        """Like :meth:`validate`, but raise ``ValueError`` with all the reasons."""
        settings = self.validate(values)
        if isinstance(settings, list):
            raise ValueError(f"{self.title}: " + "; ".join(settings))
        return settings

    def change(self, values: Mapping[str, Any], changes: Mapping[str, Any], active: bool) -> Settings | list[str]:
        """Validate ``changes`` on top of ``values``; while ``active``, a parameter that is not live is refused."""
        fixed = [
            f"{name} cannot be changed while the node is active; deactivate it first"
            for name, value in changes.items()
            if active and name in self._by_name and not self._by_name[name].live and values.get(name) != value
        ]
        return fixed or self.validate({**values, **changes})

    def markdown(self) -> str:
        """Return the table for the documentation."""
        lines = ["| parameter | type | default | range | live | meaning |", "|---|---|---|---|---|---|"]
        for p in self.parameters:
            default = ", ".join(map(str, p.default)) if isinstance(p.default, (list, tuple)) else str(p.default)
            cells = (
                f"`{p.name}`",
                p.type_text(),
                default or '""',
                p.range_text() or "",
                "yes" if p.live else "no",
                p.doc,
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join(lines) + "\n"

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, list(self._by_name), 1)
        return f"no parameter '{name}'" + (f"; did you mean '{near[0]}'?" if near else f" in {self.title}")
