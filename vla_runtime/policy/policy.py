"""What a policy is for the rest of the program, and how a bundle becomes one."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from vla_runtime.engines.base import Engine
from vla_runtime.engines.registry import make_engine, resolve
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.policy.bundle import Bundle, load_bundle
from vla_runtime.policy.errors import BundleError
from vla_runtime.policy.proof import require_proof

# family: module whose ``make(bundle, engines)`` builds the policy; a new family is one file and one line here
FAMILIES: dict[str, str] = {
    "direct": "vla_runtime.policy.direct",
    "flow": "vla_runtime.policy.flow",
    "tokens": "vla_runtime.policy.tokens",
}


@dataclass(frozen=True)
class Observation:
    """What a policy looks at, at one instant.

    ``t``: steady seconds of the oldest input. ``images``: (h, w, 3) uint8 RGB by camera name.
    ``state``: (n_state,) rad in the bundle's order of joints.
    """

    t: float
    images: dict[str, np.ndarray]
    state: np.ndarray
    instruction: str


@dataclass(frozen=True)
class Prefix:
    """What will be executed from the observation on: (d, n) rad, absolute, bundle order, one row per policy step."""

    positions: np.ndarray


@dataclass(frozen=True)
class PolicyOutput:
    """A chunk: ``actions`` (H, n) float64 rad, absolute; how long each stage took; counters of this inference."""

    actions: np.ndarray
    stage_ms: dict[str, float]
    details: dict[str, float] = field(default_factory=dict)


class Policy(Protocol):
    """Drives the stages of one bundle. Not to be called from two threads at once."""

    bundle: Bundle
    engines: dict[str, Engine]

    def warm_up(self) -> None:
        """Run once on blank inputs, so that the first real inference is not the slow one."""
        ...

    def infer(
        self, observation: Observation, prefix: Prefix | None = None, delay_steps: int = 0, seed: int | None = None
    ) -> PolicyOutput:
        """Compute one chunk. ``delay_steps`` of the prefix's rows are committed; the same seed gives the same chunk."""
        ...


def load_policy(
    bundle_dir: str | Path | Bundle,
    engine: str = "auto",
    *,
    allow_unproven: bool = False,
    settings: EngineSettings | None = None,
    wrap: Callable[[Engine], Engine] | None = None,
) -> Policy:
    """Load a bundle and the engines of its stages.

    ``allow_unproven``: run an engine without a passing parity record; for the laboratory only.
    ``wrap``: put something round each engine (used to inject faults and to measure).
    Raises BundleError, UnprovenEngineError or EngineError; each names the file or stage and what to do.
    """
    bundle = bundle_dir if isinstance(bundle_dir, Bundle) else load_bundle(bundle_dir)
    family = bundle.policy.family
    if family not in FAMILIES:
        raise BundleError(f"bundle {bundle.path}: family '{family}' is unknown; this version has {sorted(FAMILIES)}")
    name = resolve(engine)
    if not allow_unproven:
        require_proof(bundle, name)
    engines = {stage: make_engine(name, bundle.stage_path(stage), stage, settings) for stage in bundle.policy.stages}
    if wrap is not None:
        engines = {stage: wrap(made) for stage, made in engines.items()}
    return importlib.import_module(FAMILIES[family]).make(bundle, engines)
