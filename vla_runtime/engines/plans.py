"""Built engines on disk. A plan belongs to one ONNX file, one engine version, one kind of device, and nothing else."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from vla_runtime.engines.errors import EngineStaleError


@dataclass(frozen=True)
class PlanKey:
    """What a plan was built from and for. ``sm``: compute capability, 87 for 8.7."""

    stage: str
    onnx_sha256: str
    engine: str
    version: str
    sm: int
    precision: str = "as the file says"

    @property
    def name(self) -> str:
        """File name without suffix."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"{self.stage}-{digest[:20]}"


def default_cache() -> Path:
    """Where plans are kept: $VLA_ENGINE_CACHE, else ~/.cache/vla_runtime/engines."""
    chosen = os.environ.get("VLA_ENGINE_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "vla_runtime" / "engines"


def store(cache: Path, key: PlanKey, plan: bytes) -> Path:
    """Write a plan and what it belongs to; a plan appears whole or not at all. Return its path."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{key.name}.plan"
    _write(path, plan)
    label = {**asdict(key), "plan_sha256": hashlib.sha256(plan).hexdigest()}
    _write(path.with_suffix(".json"), json.dumps(label, indent=1).encode())
    return path


def lookup(cache: Path, key: PlanKey) -> bytes | None:
    """Return the plan for exactly this key; None when there is none, or when its file is damaged."""
    path = cache / f"{key.name}.plan"
    try:
        label = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        plan = path.read_bytes()
    except (OSError, ValueError):
        return None
    same = all(label.get(name) == value for name, value in asdict(key).items())
    return plan if same and label.get("plan_sha256") == hashlib.sha256(plan).hexdigest() else None


def require(cache: Path, key: PlanKey) -> bytes:
    """Return the plan for this key; EngineStaleError naming what differs in the plan there is, and the remedy."""
    plan = lookup(cache, key)
    if plan is not None:
        return plan
    remedy = f"build it on this device: vla build BUNDLE --engine {key.engine}"
    for label in sorted(cache.glob(f"{key.stage}-*.json")) if cache.is_dir() else []:
        try:
            other = json.loads(label.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if other.get("engine") != key.engine or other.get("onnx_sha256") != key.onnx_sha256:
            continue
        differs = [
            f"{name} {other.get(name)}, here {value}" for name, value in asdict(key).items() if other.get(name) != value
        ]
        if differs:
            raise EngineStaleError(f"stage '{key.stage}': the plan there is belongs to {'; '.join(differs)}; {remedy}")
        raise EngineStaleError(f"stage '{key.stage}': the plan {label.with_suffix('.plan')} is damaged; {remedy}")
    raise EngineStaleError(
        f"stage '{key.stage}': no plan for {key.engine} {key.version} on SM {key.sm / 10:.1f} in {cache}; {remedy}"
    )


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
