"""The pool of observations that batches are drawn from; it grows while training runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vla_runtime.sim.scene import JOINTS
from vla_runtime.toolchain.train_demo.records import read_shard, shard_folders
from vla_runtime.toolchain.train_demo.text import build_tokenizer, phrase_table

IMAGE_MEAN, IMAGE_STD = 0.5, 0.25
MAX_DELAY = 12
OWN_COLOUR = 0.7  # share of samples with the colour the episode was about; the rest ask for another one
CORRECTION_WEIGHT = 2.0  # how much likelier an observation of a policy's own episode is


@dataclass
class Batch:
    """Tensors of one step, normalised. ``images`` (B, 2, 3, 96, 96); ``actions`` (B, 50, 6); ``first``: prefix rows."""

    images: Tensor
    tokens: Tensor
    mask: Tensor
    state: Tensor
    actions: Tensor
    first: Tensor
    goal: Tensor  # (B, 5): x, y, z scaled, sin and cos of 4 yaw
    pixels: Tensor  # (B, 2, 2)
    in_view: Tensor  # (B, 2)


class Pool:
    """Draws seeded batches from all shards under ``root``; ``refresh`` takes in new ones."""

    def __init__(self, root: Path, seed: int, only: list[str] | None = None, skip: list[str] | None = None):
        self.root, self.rng = Path(root), np.random.default_rng([seed, 7])
        self.only, self.skip = only, skip or []
        self.shards: dict[str, dict[str, np.ndarray]] = {}
        self.tokens, self.masks = phrase_table(build_tokenizer())
        self.index = np.zeros((0, 2), np.int64)
        self.weights = np.zeros(0)
        self.refresh()

    def refresh(self) -> int:
        """Load shards that have appeared; return the number of observations."""
        for folder in shard_folders(self.root):
            name = folder.name
            if name in self.shards or name in self.skip or (self.only is not None and name not in self.only):
                continue
            shard = read_shard(folder)
            shard["images"] = np.array(shard["images"])
            self.shards[name] = shard
        parts, weights = [], []
        for k, (name, shard) in enumerate(self.shards.items()):
            rows = len(shard["own"])
            parts.append(np.stack([np.full(rows, k), np.arange(rows)], 1))
            weights.append(np.full(rows, CORRECTION_WEIGHT if name.startswith("policy") else 1.0))
        self.index, self.weights = np.concatenate(parts), np.cumsum(np.concatenate(weights))
        return len(self.index)

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and std (6,) of the commands; state and actions share them."""
        rows = np.concatenate([s["chunks"][s["valid"]].reshape(-1, len(JOINTS))[::7] for s in self.shards.values()])
        return rows.mean(0), rows.std(0)

    def draw(self, size: int, mean: np.ndarray, std: np.ndarray, augment: bool = True) -> Batch:
        """Draw a batch with replacement."""
        rng = self.rng
        chosen = np.searchsorted(self.weights, rng.random(size) * self.weights[-1], side="right")
        shards = list(self.shards.values())
        rows: dict[str, list] = {field: [] for field in Batch.__dataclass_fields__}
        for k, i in self.index[np.minimum(chosen, len(self.index) - 1)]:
            shard = shards[k]
            colour = int(shard["own"][i])
            others = [c for c in np.flatnonzero(shard["valid"][i]) if c != colour]
            if others and rng.random() > OWN_COLOUR:
                colour = int(rng.choice(others))
            phrase = int(rng.integers(self.tokens.shape[1]))
            x, y, z, yaw = shard["cubes"][i, colour]
            rows["images"].append(shard["images"][i])
            rows["tokens"].append(self.tokens[colour, phrase])
            rows["mask"].append(self.masks[colour, phrase])
            rows["state"].append(shard["state"][i])
            rows["actions"].append(shard["chunks"][i, colour])
            rows["first"].append(shard["prefix"][i])
            rows["goal"].append(((x - 0.22) * 12, y * 10, (z - 0.03) * 20, np.sin(4 * yaw), np.cos(4 * yaw)))
            rows["pixels"].append(shard["pixels"][i, colour])
            rows["in_view"].append(shard["in_view"][i, colour])
        t = {field: torch.from_numpy(np.asarray(value)) for field, value in rows.items()}
        for field in ("state", "actions"):
            t[field] = (t[field] - torch.from_numpy(mean)) / torch.from_numpy(std)
        if augment:
            # The measured state carries noise on a robot, and must not be trusted to the last digit.
            t["state"] = t["state"] + torch.from_numpy(rng.normal(0, 0.003, t["state"].shape)) / torch.from_numpy(std)
        t["images"] = normalise(t["images"], rng if augment else None)
        floats = ("mask", "state", "actions", "goal", "pixels")
        return Batch(**{field: value.float() if field in floats else value for field, value in t.items()})


def normalise(images: Tensor, rng: np.random.Generator | None = None) -> Tensor:
    """Turn uint8 (B, cameras, h, w, 3) into float (B, cameras, 3, h, w); ``rng``: change light and colours a little."""
    x = images.permute(0, 1, 4, 2, 3).float() / 255.0
    if rng is not None:
        batch, cameras = x.shape[:2]
        gain = rng.uniform(0.85, 1.15, (batch, cameras, 1, 1, 1)) * rng.uniform(0.93, 1.07, (batch, cameras, 3, 1, 1))
        shift = rng.uniform(-0.04, 0.04, (batch, cameras, 1, 1, 1))
        x = (x * torch.from_numpy(gain).float() + torch.from_numpy(shift).float()).clamp(0, 1)
    return (x - IMAGE_MEAN) / IMAGE_STD


def draw_delays(rng: np.random.Generator, first: np.ndarray) -> np.ndarray:
    """Draw how many first actions are committed: none half of the time, else 1..MAX_DELAY; at least ``first``."""
    delays = np.where(rng.random(first.shape) < 0.5, rng.integers(1, MAX_DELAY + 1, first.shape), 0)
    return np.maximum(delays, first)
