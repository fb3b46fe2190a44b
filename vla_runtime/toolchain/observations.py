"""Observation sets: what parity compares on and quantisation calibrates on. One safetensors file, nothing unpickled.

Tensors: ``image.<camera>`` (N, h, w, 3) uint8, ``state`` (N, n) float32 rad in the bundle's order; optionally
``actions`` (N, H, n) float64 rad and ``seed`` (N,) int64: what the checkpoint's own code gave for that noise; and
``stage.<tensor>`` (M, ...), M <= N: what its stages read and gave for the first M observations, by the bundle's names.
Metadata: ``format``, ``instructions`` (a JSON list of N strings), ``made_by``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.policy import Observation

FORMAT = "vla-observations/1"
REFERENCE_FILE = "reference.safetensors"
STAGE_PREFIX = "stage."


@dataclass(frozen=True)
class ObservationSet:
    """Observations, and where known the reference's answers.

    ``actions`` (N, H, n) rad drawn with ``seeds`` (N,); ``tensors``: (M, ...) of the stages, by name.
    """

    observations: list[Observation]
    source: str
    seeds: np.ndarray
    actions: np.ndarray | None = None
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.observations)

    def first(self, count: int) -> "ObservationSet":
        """Return the first ``count`` of them."""
        actions = None if self.actions is None else self.actions[:count]
        tensors = {name: value[:count] for name, value in self.tensors.items()}
        return ObservationSet(self.observations[:count], self.source, self.seeds[:count], actions, tensors)


def random_observations(policy: PolicyModel, count: int, seed: int = 0) -> ObservationSet:
    """Blocky random pictures, states within two deviations, the default instruction: for bundles without recordings."""
    rng = np.random.default_rng(seed)
    observations = []
    for _ in range(count):
        images = {}
        for camera in policy.cameras:
            coarse = rng.integers(0, 256, (-(-camera.height // 8), -(-camera.width // 8), 3), dtype=np.uint8)
            images[camera.name] = coarse.repeat(8, axis=0).repeat(8, axis=1)[: camera.height, : camera.width]
        spread = np.asarray(policy.state.std) * rng.uniform(-2, 2, len(policy.state.joints))
        text = policy.instruction.default if policy.instruction is not None else ""
        observations.append(Observation(0.0, images, np.asarray(policy.state.mean) + spread, text))
    return ObservationSet(observations, f"random, seed {seed}", np.arange(count))


def save_observations(path: Path, made: ObservationSet, made_by: str) -> None:
    """Write a set as safetensors."""
    from safetensors.numpy import save_file

    if not made.observations:
        raise UserError(f"{path}: there are no observations to write")
    tensors = {
        f"image.{name}": np.stack([each.images[name] for each in made.observations])
        for name in made.observations[0].images
    }
    tensors["state"] = np.stack([each.state for each in made.observations]).astype(np.float32)
    tensors["seed"] = np.asarray(made.seeds, np.int64)
    if made.actions is not None:
        tensors["actions"] = np.asarray(made.actions, np.float64)
    tensors |= {f"{STAGE_PREFIX}{name}": np.ascontiguousarray(value) for name, value in made.tensors.items()}
    instructions = json.dumps([each.instruction for each in made.observations])
    save_file(tensors, str(path), {"format": FORMAT, "instructions": instructions, "made_by": made_by})


def load_observations(path: Path, policy: PolicyModel) -> ObservationSet:
    """Read a set and hold it to ``policy``; UserError naming the file and what does not fit."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise UserError(f"{path}: no such file of observations")
    try:
        with safe_open(str(path), "numpy") as stream:
            metadata = stream.metadata() or {}
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise UserError(f"{path}: not readable as safetensors: {error}") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path}: format is {metadata.get('format')!r}, this version reads {FORMAT!r}")
    wanted = [f"image.{camera.name}" for camera in policy.cameras] + ["state"]
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise UserError(f"{path}: lacks {missing}; it has {sorted(tensors)}. Is it of another policy?")
    instructions = json.loads(metadata.get("instructions", "[]"))
    count, width = tensors["state"].shape
    if width != len(policy.state.joints):
        raise UserError(f"{path}: states have {width} joints, the policy reads {len(policy.state.joints)}")
    lengths = {name: len(tensors[name]) for name in wanted} | {"instructions": len(instructions)}
    if set(lengths.values()) != {count}:
        raise UserError(f"{path}: numbers of observations differ: {lengths}")
    observations = [
        Observation(
            0.0,
            {camera.name: tensors[f"image.{camera.name}"][i] for camera in policy.cameras},
            tensors["state"][i].astype(np.float64),
            instructions[i],
        )
        for i in range(count)
    ]
    stages = {
        name.removeprefix(STAGE_PREFIX): value for name, value in tensors.items() if name.startswith(STAGE_PREFIX)
    }
    seeds = tensors.get("seed", np.arange(count))
    return ObservationSet(observations, Path(path).name, seeds, tensors.get("actions"), stages)
