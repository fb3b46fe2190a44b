"""What every joint may do: position, velocity, acceleration and jerk, from a robot's YAML or from its URDF."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml

_KEYS = ("lower", "upper", "velocity", "acceleration", "jerk")


class LimitsError(ValueError):
    """Limits that cannot be right; the message names the joint, the value and what to write instead."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of n joints, in the controller's joint order. Units: rad (m for prismatic joints) and seconds.

    ``lower`` and ``upper`` may be infinite (continuous joints); ``velocity``, ``acceleration`` and ``jerk`` are
    positive and finite. ``discrete`` marks joints that are stepped to a new plan at once and never blended, such as
    grippers. All are (n,) arrays. Raises :class:`LimitsError`.
    """

    joint_names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    jerk: np.ndarray
    discrete: np.ndarray = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        names = tuple(self.joint_names)
        object.__setattr__(self, "joint_names", names)
        if not names:
            raise LimitsError("no joints: name at least one")
        if len(set(names)) != len(names):
            raise LimitsError(f"a joint is named twice: {', '.join(names)}")
        for key in _KEYS:
            array = np.array(getattr(self, key), dtype=np.float64)
            if array.shape != (len(names),):
                raise LimitsError(f"{key}: {len(names)} joints need {len(names)} values, got shape {array.shape}")
            object.__setattr__(self, key, _frozen(array))
        discrete = np.zeros(len(names), bool) if self.discrete is None else np.array(self.discrete, dtype=bool)
        if discrete.shape != (len(names),):
            raise LimitsError(f"discrete: {len(names)} joints need {len(names)} values, got shape {discrete.shape}")
        object.__setattr__(self, "discrete", _frozen(discrete))
        for i, name in enumerate(names):
            if not self.lower[i] < self.upper[i]:
                raise LimitsError(f"{name}: lower {self.lower[i]} must be below upper {self.upper[i]}")
            for key in ("velocity", "acceleration", "jerk"):
                value = getattr(self, key)[i]
                if not (value > 0.0 and math.isfinite(value)):
                    raise LimitsError(f"{name}: {key} must be positive and finite, got {value}")

    def __len__(self) -> int:
        return len(self.joint_names)

    def select(self, names: Sequence[str]) -> Limits:
        """Return the limits of these joints, in this order. Raises :class:`LimitsError` on an unknown name."""
        index = [self.index(name) for name in names]
        arrays = {key: getattr(self, key)[index] for key in (*_KEYS, "discrete")}
        return Limits(joint_names=tuple(names), **arrays)

    def index(self, name: str) -> int:
        """Return a joint's place. Raises :class:`LimitsError` with the names there are."""
        try:
            return self.joint_names.index(name)
        except ValueError:
            raise LimitsError(f"no limits for joint '{name}'; there are: {', '.join(self.joint_names)}") from None

    def scaled(self, velocity: float = 1.0, acceleration: float = 1.0, jerk: float = 1.0) -> Limits:
        """Return the same position limits with the others multiplied by these factors."""
        return Limits(
            self.joint_names,
            self.lower,
            self.upper,
            self.velocity * velocity,
            self.acceleration * acceleration,
            self.jerk * jerk,
            self.discrete,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], discrete: Iterable[str] = ()) -> Limits:
        """Read ``{joint: {lower, upper, velocity, acceleration, jerk[, discrete]}}``, also below a key ``joints``.

        The order of the mapping is the joint order. ``discrete`` names further discrete joints. A joint with
        ``continuous: true`` needs no ``lower`` and ``upper``. Raises :class:`LimitsError`.
        """
        joints = data.get("joints", data) if isinstance(data, Mapping) else None
        if not isinstance(joints, Mapping) or not joints:
            raise LimitsError("expected a mapping of joint names to limits, as in config/robots")
        discrete = set(discrete)
        unknown = discrete - set(joints)
        if unknown:
            raise LimitsError(f"discrete joint '{min(unknown)}' has no limits; there are: {', '.join(joints)}")
        rows = [_row(str(name), entry) for name, entry in joints.items()]
        columns = {key: np.array([row[key] for row in rows]) for key in _KEYS}
        marked = [bool(row["discrete"]) or name in discrete for name, row in zip(joints, rows)]
        return cls(tuple(map(str, joints)), **columns, discrete=np.array(marked))

    @classmethod
    def from_yaml(cls, path: str | Path, discrete: Iterable[str] = ()) -> Limits:
        """Read a robot's YAML (see ``config/robots``). Raises :class:`LimitsError` with the path."""
        try:
            data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise LimitsError(f"cannot read the limits: {error}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise LimitsError(f"{path} is not YAML: {error}") from None
        try:
            return cls.from_dict(data, discrete)
        except LimitsError as error:
            raise LimitsError(f"{path}: {error}") from None

    @classmethod
    def from_urdf(
        cls,
        text: str,
        joint_names: Sequence[str],
        acceleration: float | Mapping[str, float],
        jerk: float | Mapping[str, float],
        discrete: Iterable[str] = (),
    ) -> Limits:
        """Read position and velocity limits from a URDF's text; acceleration and jerk, which it lacks, are given.

        ``acceleration`` and ``jerk``: one number for all, or one per joint name. Raises :class:`LimitsError`.
        """
        try:
            root = ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise LimitsError(f"the URDF is not XML: {error}") from None
        found = {joint.get("name"): joint for joint in root.findall("joint")}
        entries = {}
        for name in joint_names:
            if name not in found:
                near = get_close_matches(name, [n for n in found if n], 1)
                raise LimitsError(f"no joint '{name}' in the URDF" + (f"; did you mean '{near[0]}'?" if near else ""))
            limit = found[name].find("limit")
            if limit is None:
                raise LimitsError(f"{name}: the URDF gives it no <limit>")
            entry: dict[str, Any] = {"velocity": limit.get("velocity"), "continuous": False}
            if found[name].get("type") == "continuous":
                entry["continuous"] = True
            else:  # the URDF specification: both default to 0
                entry["lower"], entry["upper"] = limit.get("lower", "0"), limit.get("upper", "0")
            for key, value in (("acceleration", acceleration), ("jerk", jerk)):
                entry[key] = value.get(name) if isinstance(value, Mapping) else value
            entries[name] = {key: value for key, value in entry.items() if value is not None}
        return cls.from_dict(entries, discrete)


def _row(name: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise LimitsError(f"{name}: expected {{{', '.join(_KEYS)}}}, got {entry!r}")
    allowed = (*_KEYS, "discrete", "continuous")
    for key in entry:
        if key not in allowed:
            near = get_close_matches(str(key), allowed, 1)
            raise LimitsError(f"{name}: unknown key '{key}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    for key in ("discrete", "continuous"):
        if not isinstance(entry.get(key, False), bool):  # a quoted "false" would be true
            raise LimitsError(f"{name}: {key} must be true or false, got {entry[key]!r}")
    row: dict[str, Any] = {"discrete": entry.get("discrete", False)}
    if entry.get("continuous", False):
        entry = {**entry, "lower": entry.get("lower", -math.inf), "upper": entry.get("upper", math.inf)}
    for key in _KEYS:
        if key not in entry:
            raise LimitsError(f"{name}: {key} is missing")
        value = entry[key]
        try:
            if isinstance(value, bool):
                raise TypeError
            row[key] = float(value)
        except (TypeError, ValueError):
            raise LimitsError(f"{name}: {key} must be a number, got {value!r}") from None
        if math.isnan(row[key]):
            raise LimitsError(f"{name}: {key} must be a number, got {value!r}")
    return row


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
