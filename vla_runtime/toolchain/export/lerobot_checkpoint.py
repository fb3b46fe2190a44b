"""Reads LeRobot checkpoint directories: config.json, model.safetensors, and the processors' statistics.

Only JSON and safetensors are read. Statistics become the bundle's normalisation, x_normal = (x - mean) / std.
"""

import json
from dataclasses import dataclass
from math import pi
from pathlib import Path

import numpy as np

from vla_runtime.errors import UserError

RADIANS_PER = {"rad": 1.0, "deg": pi / 180}
IMAGE_PREFIX = "observation.images."
STATISTICS = {  # by normalisation: mean and deviation, or what becomes -1 and 1
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
EPSILON = 1e-8  # LeRobot's normaliser adds it to the deviation


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's configuration (parsed config.json) and its statistics by feature and kind."""

    path: Path
    config: dict
    statistics: dict[str, dict[str, np.ndarray]]

    @property
    def cameras(self) -> dict[str, tuple[int, int]]:
        """Height and width by camera name, in the model's order."""
        features = self.config.get("input_features", {})
        return {
            name.removeprefix(IMAGE_PREFIX): (int(each["shape"][1]), int(each["shape"][2]))
            for name, each in features.items()
            if each.get("type") == "VISUAL"
        }

    def feature(self, name: str) -> str:
        """The full feature name of a camera."""
        features = self.config["input_features"]
        return name if name in features else f"{IMAGE_PREFIX}{name}"

    def width(self, kind: str) -> int:
        """Number of values of 'observation.state' or 'action'."""
        features = {**self.config.get("input_features", {}), **self.config.get("output_features", {})}
        if kind not in features:
            raise UserError(f"{self.path}/config.json: no feature '{kind}'; it has {sorted(features)}")
        return int(features[kind]["shape"][0])

    def normalisation(self, kind: str, feature: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return (mean, std) of a feature of type ``kind`` ('STATE', 'ACTION', 'VISUAL'); None: the identity."""
        mode = self.config.get("normalization_mapping", {}).get(kind, "IDENTITY")
        if mode == "IDENTITY":
            return None
        stats = self.statistics.get(feature)
        if mode not in STATISTICS:
            raise UserError(f"{self.path}/config.json: normalisation {mode} of {kind} is not supported")
        needed = STATISTICS[mode]
        if stats is None or any(name not in stats for name in needed):
            raise UserError(
                f"{self.path}: no statistics {needed} of '{feature}' for its normalisation {mode}; "
                f"there are statistics of {sorted(self.statistics)}. Save the checkpoint with its processors."
            )
        if mode == "MEAN_STD":
            return stats["mean"].ravel(), stats["std"].ravel() + EPSILON
        low, high = (stats[name].ravel() for name in needed)
        return (low + high) / 2, np.maximum((high - low) / 2, EPSILON)

    def in_radians(self, kind: str, feature: str, width: int, unit: str) -> dict:
        """Return ``mean`` and ``std`` for policy.yaml, turned from ``unit`` to radians."""
        found = self.normalisation(kind, feature)
        mean, std = found if found is not None else (np.zeros(width), np.ones(width))
        factor = RADIANS_PER[unit]
        return {"mean": [float(v) * factor for v in mean], "std": [float(v) * factor for v in std]}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the directory; UserError naming the file that is missing or malformed."""
    config = path / "config.json"
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no config.json; is this a checkpoint directory (save_pretrained)?") from None
    except ValueError as error:
        raise UserError(f"{config}: not JSON: {error}") from None
    pickled = [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pth")]
    if pickled and not any(path.glob("model*.safetensors")):
        raise UserError(f"{pickled[0]}: pickled weights are never loaded; convert them to model.safetensors")
    return Checkpoint(path, content, _statistics(path))


def _statistics(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Collect what the normalisers' files hold, named '<feature>.<kind>'."""
    from safetensors.numpy import load_file

    found: dict[str, dict[str, np.ndarray]] = {}
    for file in sorted(path.glob("policy_*processor*normalizer*.safetensors")):
        for name, value in load_file(str(file)).items():
            feature, _, kind = name.rpartition(".")
            found.setdefault(feature, {})[kind] = np.asarray(value, np.float64)
    return found
