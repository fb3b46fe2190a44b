"""What all families share: preprocessing, tokens, running stages in order, timing, and the way back to radians."""

import time as clock
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import numpy as np

from vla_runtime.engines.base import Engine, TensorSpec
from vla_runtime.engines.errors import EngineOutputError
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.errors import BundleError, ObservationError, UnreachableError
from vla_runtime.policy.policy import Observation, PolicyOutput, Prefix
from vla_runtime.policy.preprocess import images_tensor
from vla_runtime.policy.space_choice import choose_space
from vla_runtime.policy.tokenizer import InstructionTokenizer


class StagedPolicy:
    """A policy whose stages run once each, in order, before a family's own last step. Implements ``Policy``."""

    needs: tuple[str, ...] = ()  # stages that a family cannot do without

    def __init__(self, bundle: Bundle, engines: dict[str, Engine]):
        missing = [stage for stage in self.needs if stage not in engines]
        if missing:
            raise BundleError(
                f"bundle {bundle.path}: family '{bundle.policy.family}' needs the stages {list(self.needs)}; "
                f"missing {missing}"
            )
        self.bundle = bundle
        self.engines = engines
        self.space = choose_space(bundle)
        instruction = bundle.policy.instruction
        self._tokenizer = None
        if instruction is not None:
            self._tokenizer = InstructionTokenizer(bundle.file(instruction.tokenizer), instruction)
        # NumPy, or CuPy where the stages run on a GPU: then pictures go up once, and only actions come back.
        self._xp = getattr(next(iter(engines.values())), "array_module", np)
        self._seeds = np.random.default_rng(np.random.SeedSequence())

    def warm_up(self) -> None:
        """Run once on blank pictures and the mean state. Where a pose drawn from those lies is no fault."""
        policy = self.bundle.policy
        images = {camera.name: np.zeros((camera.height, camera.width, 3), np.uint8) for camera in policy.cameras}
        default = policy.instruction.default if policy.instruction is not None else ""
        with suppress(UnreachableError):
            self.infer(Observation(0.0, images, np.asarray(policy.state.mean, float), default or "warm up"), seed=0)

    def infer(
        self, observation: Observation, prefix: Prefix | None = None, delay_steps: int = 0, seed: int | None = None
    ) -> PolicyOutput:
        """Compute one chunk (H, n) from an observation.

        The first ``delay_steps`` rows of ``prefix`` are committed: where the family can, the chunk continues them and
        repeats them unchanged (``details['committed_steps']`` says how many).
        Raises ObservationError for a state or prefix of the wrong width or with values that are not finite, and
        UnreachableError for a plan of poses that the arm cannot follow.
        """
        state = checked(observation.state, (len(self.bundle.policy.state.joints),), "state")
        stage_ms: dict[str, float] = {}
        context = self.context(observation, state, stage_ms)
        commitment = self.commitment(prefix, delay_steps, state)
        with timed(stage_ms, "action"):
            rows = self.last_step(context, commitment, seed)
        if not np.isfinite(rows).all():
            raise EngineOutputError("stage 'action': the chunk has values that are not finite")
        count = 0 if commitment is None else commitment.delay
        known = np.asarray(prefix.positions[:count], np.float64) if count else None
        with timed(stage_ms, "kinematics") if self.space.kinematic else nullcontext():
            actions = self.space.to_radians(rows, state, known)
        return PolicyOutput(actions, stage_ms, {"committed_steps": float(count)})

    def context_stages(self) -> list[str]:
        """Stages that run once, in the bundle's order."""
        return [stage for stage in self.bundle.policy.stages if not stage.startswith("action")]

    def context(self, observation: Observation, state: np.ndarray, stage_ms: dict[str, float]) -> dict[str, Any]:
        """Run preprocessing and the stages before the last step; return every tensor that it may read."""
        with timed(stage_ms, "preprocess"):
            tensors = self.inputs(observation, state)
        for stage in self.context_stages():
            with timed(stage_ms, stage):
                tensors = {**tensors, **self.run_stage(stage, tensors)}
        return tensors

    def inputs(self, observation: Observation, state: np.ndarray) -> dict[str, Any]:
        """Return the tensors that the runtime fills: images, text_tokens, text_mask, state."""
        xp = self._xp
        tensors: dict[str, Any] = {"state": self.space.state_row(state)}
        if self.bundle.policy.cameras:
            images = {name: xp.asarray(image) for name, image in observation.images.items()}
            tensors["images"] = images_tensor(images, self.bundle.policy.cameras, xp)
        if self._tokenizer is not None:
            text = observation.instruction or self.bundle.policy.instruction.default
            tensors["text_tokens"], tensors["text_mask"] = self._tokenizer.encode(text, tensors["state"][0])
        return tensors

    def commitment(self, prefix: Prefix | None, delay_steps: int, state: np.ndarray) -> Any:
        """Return what of a prefix the family honours, with a ``delay``; None: nothing. Here: nothing."""
        return None

    def last_step(self, context: dict[str, Any], commitment: Any, seed: int | None) -> np.ndarray:
        """Return the chunk as (H, width) normalised rows, on the host."""
        rows = self.run_stage("action", context)["actions"][0]
        return self.to_host(rows)

    def run_stage(self, stage: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """Run one stage on those of ``tensors`` that it reads, cast to its own float types."""
        engine = self.engines[stage]
        given = {name: _cast(tensors[name], spec) for name, spec in engine.inputs.items() if name in tensors}
        return engine.run(given)

    def to_host(self, rows: Any) -> np.ndarray:
        """Return a NumPy array."""
        return rows if self._xp is np else self._xp.asnumpy(rows)


def checked(values: Any, shape: tuple[int, ...], label: str) -> np.ndarray:
    """Return ``values`` as float64; ObservationError when the shape differs or a value is not finite."""
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise ObservationError(f"{label} has shape {list(array.shape)}, this policy reads {list(shape)}")
    if not np.isfinite(array).all():
        raise ObservationError(f"{label} has a value that is not finite: {array.tolist()}")
    return array


@contextmanager
def timed(stage_ms: dict[str, float], name: str):
    """Put the milliseconds of the block into ``stage_ms[name]``."""
    start = clock.perf_counter()
    yield
    stage_ms[name] = (clock.perf_counter() - start) * 1e3


def _cast(value: Any, spec: TensorSpec) -> Any:
    """Change between float types, and from a bool mask to numbers; never the shape."""
    return value if str(value.dtype) == spec.dtype else value.astype(spec.dtype)
