"""What the training reads: observations with, for each colour, what the expert would do. Kept as .npy files.

A shard is a folder of arrays with one row per observation; it appears under its name only when complete.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HORIZON = 50
FIELDS: dict[str, tuple[tuple[int, ...], type]] = {
    "images": ((2, 96, 96, 3), np.uint8),  # front, wrist; RGB
    "state": ((6,), np.float32),  # measured joints, rad
    "chunks": ((3, HORIZON, 6), np.float32),  # per colour: commands from the observation's instant on, rad
    "valid": ((3,), np.bool_),  # is there a chunk for the colour
    "own": ((), np.int8),  # colour of the episode
    "prefix": ((), np.int8),  # this many first rows of the chunk are not the expert's
    "cubes": ((3, 4), np.float32),  # x, y, z m, yaw rad
    "pixels": ((3, 2, 2), np.float32),  # per colour and camera: u, v, fractions of the picture
    "in_view": ((3, 2), np.bool_),
    "episode": ((), np.int64),  # its seed
}


class ShardWriter:
    """Collects rows and writes them as one shard."""

    def __init__(self, root: Path, name: str):
        self.root, self.name = Path(root), name
        self.rows: dict[str, list] = {field: [] for field in FIELDS}

    def add(self, **row) -> None:
        """Append one observation; every field of FIELDS must be given."""
        for field in FIELDS:
            self.rows[field].append(row[field])

    def __len__(self) -> int:
        return len(self.rows["own"])

    def close(self) -> Path:
        """Write the shard and return its folder."""
        part = self.root / f".{self.name}.part"
        part.mkdir(parents=True, exist_ok=True)
        for field, (shape, dtype) in FIELDS.items():
            array = np.asarray(self.rows[field], dtype).reshape(len(self), *shape)
            np.save(part / f"{field}.npy", array, allow_pickle=False)
        final = self.root / self.name
        part.rename(final)
        return final


def read_shard(folder: Path) -> dict[str, np.ndarray]:
    """Read a shard; the images stay on disk (memory map). ValueError if a field has the wrong shape or type."""
    rows: dict[str, np.ndarray] = {}
    for field, (shape, dtype) in FIELDS.items():
        array = np.load(Path(folder) / f"{field}.npy", mmap_mode="r" if field == "images" else None, allow_pickle=False)
        if array.shape[1:] != shape or array.dtype != dtype:
            raise ValueError(f"{folder}/{field}.npy is {array.dtype} {array.shape[1:]}, expected {dtype} {shape}")
        rows[field] = array
    return rows


def shard_folders(root: Path) -> list[Path]:
    """List complete shards in order of name."""
    return sorted(p for p in Path(root).iterdir() if p.is_dir() and not p.name.startswith("."))
