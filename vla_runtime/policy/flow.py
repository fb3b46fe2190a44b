"""Flow-matching policies: vision once, backbone once, then the action expert step by step.

Time runs from noise (0) to clean (1): x += v / steps. A committed prefix is honoured in one of two ways:
training-time real-time chunking (arXiv 2512.05964), where the model has seen clean prefixes in training: before every
step the prefix rows are set to the committed actions and their time to 1; or guidance (arXiv 2506.07339), which pulls
an untrained model towards them and softly towards what was planned after them: through the exact vector-Jacobian
product where the bundle has the stage `action_vjp`, else with the Jacobian taken for the identity.
"""

import time as clock
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_runtime.engines.base import Engine, TensorSpec
from vla_runtime.engines.errors import EngineOutputError
from vla_runtime.policy import rtc
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.errors import BundleError, ObservationError
from vla_runtime.policy.policy import Observation, PolicyOutput, Prefix
from vla_runtime.policy.preprocess import images_tensor
from vla_runtime.policy.space import ActionSpace
from vla_runtime.policy.tokenizer import InstructionTokenizer

STAGES = ("vision", "backbone", "action")
VJP = "action_vjp"  # optional stage: action's inputs and a cotangent (1, H, width) to vjp = cotangent^T dv/dx


@dataclass(frozen=True)
class Commitment:
    """Normalised rows (k, width) float32 that are known; the first ``delay`` of them will have been executed."""

    rows: np.ndarray
    delay: int

    def put_back(self, chunk: np.ndarray) -> np.ndarray:
        """Set the committed rows in a sampled chunk (H, width): the model does not keep them to the bit."""
        chunk = np.array(chunk, np.float32)
        chunk[: self.delay] = self.rows[: self.delay]
        return chunk


class FlowPolicy:
    """Drives vision, backbone and action of a ``flow`` bundle. Implements ``Policy``."""

    def __init__(self, bundle: Bundle, engines: dict[str, Engine]):
        missing = [stage for stage in STAGES if stage not in engines]
        if missing:
            raise BundleError(f"bundle {bundle.path}: family 'flow' needs the stages {list(STAGES)}; missing {missing}")
        self.bundle = bundle
        self.engines = engines
        self.space = ActionSpace(bundle.policy)
        instruction = bundle.policy.instruction
        self._tokenizer = None
        if instruction is not None:
            self._tokenizer = InstructionTokenizer(bundle.file(instruction.tokenizer), instruction)
        # NumPy, or CuPy where the stages run on a GPU: then pictures go up once, and only actions come back.
        self._xp = getattr(engines["vision"], "array_module", np)
        self._seeds = np.random.default_rng(np.random.SeedSequence())

    def warm_up(self) -> None:
        """Run once on blank pictures and the mean state."""
        policy = self.bundle.policy
        images = {camera.name: np.zeros((camera.height, camera.width, 3), np.uint8) for camera in policy.cameras}
        default = policy.instruction.default if policy.instruction is not None else ""
        self.infer(Observation(0.0, images, np.asarray(policy.state.mean, float), default or "warm up"), seed=0)

    def infer(
        self, observation: Observation, prefix: Prefix | None = None, delay_steps: int = 0, seed: int | None = None
    ) -> PolicyOutput:
        """Compute one chunk (H, n) from an observation.

        The first ``delay_steps`` rows of ``prefix`` are committed: the chunk continues them, and repeats them
        unchanged. With training-time RTC at most ``rtc.max_delay_steps`` of them count: the model has not seen more.
        Raises ObservationError for a state or prefix of the wrong width or with values that are not finite.
        """
        state = _checked(observation.state, (len(self.bundle.policy.state.joints),), "state")
        stage_ms: dict[str, float] = {}
        context = self.context(observation, state, stage_ms)
        commitment = self._commitment(prefix, delay_steps, state)
        with _timed(stage_ms, "action"):
            rows = self.sample(context, commitment, self.noise(seed))
        if not np.isfinite(rows).all():
            raise EngineOutputError("stage 'action': the chunk has values that are not finite")
        actions = self.space.to_radians(rows, state)
        count = 0 if commitment is None else commitment.delay
        if count:
            # In radians too, so that what comes back is bit-equal to what was committed.
            actions[:count] = prefix.positions[:count]
        return PolicyOutput(actions, stage_ms, {"committed_steps": float(count)})

    def context(self, observation: Observation, state: np.ndarray, stage_ms: dict[str, float]) -> dict[str, np.ndarray]:
        """Run preprocessing, vision and backbone; return every tensor that the action stage may read."""
        with _timed(stage_ms, "preprocess"):
            tensors = self.inputs(observation, state)
        for stage in ("vision", "backbone"):
            with _timed(stage_ms, stage):
                tensors = {**tensors, **self._run(stage, tensors)}
        return tensors

    def inputs(self, observation: Observation, state: np.ndarray) -> dict[str, np.ndarray]:
        """Return the tensors that the runtime fills: images, text_tokens, text_mask, state."""
        xp = self._xp
        images = {name: xp.asarray(image) for name, image in observation.images.items()}
        tensors = {"images": images_tensor(images, self.bundle.policy.cameras, xp)}
        if self._tokenizer is not None:
            text = observation.instruction or self.bundle.policy.instruction.default
            tensors["text_tokens"], tensors["text_mask"] = self._tokenizer.encode(text)
        tensors["state"] = self.space.state_row(state)
        return tensors

    def noise(self, seed: int | None) -> np.ndarray:
        """Return the start of the flow, (1, H, width) float32; None draws a new seed."""
        shape = (1, self.space.horizon, self.space.width)
        if self.bundle.policy.sampler.noise == "none":
            return np.zeros(shape, np.float32)
        chosen = int(self._seeds.integers(2**63)) if seed is None else seed
        return np.random.default_rng(chosen).standard_normal(shape, dtype=np.float32)

    def sample(self, context: dict[str, Any], commitment: Commitment | None, noise: np.ndarray) -> np.ndarray:
        """Integrate the flow; return (H, width) float32 normalised rows."""
        xp, model = self._xp, self.bundle.policy
        steps, horizon = model.sampler.steps, self.space.horizon
        start = xp.asarray(noise[0])

        def velocity(x: Any, time: Any) -> Any:
            times = xp.zeros((1, horizon), dtype=xp.float32) + xp.asarray(time, dtype=xp.float32)
            return self._run("action", {**context, "x": x[None], "time": times})["v"][0].astype(xp.float32)

        if commitment is None:
            return self._to_host(rtc.sample(velocity, start, steps))
        if model.rtc.prefix_trained:
            rows, x = xp.asarray(commitment.rows), xp.array(start)
            clean = xp.arange(horizon) < commitment.delay
            for step in range(steps):
                x[: commitment.delay] = rows
                x = x + velocity(x, xp.where(clean, 1.0, step / steps)) / steps
            return commitment.put_back(self._to_host(x))
        target = xp.asarray(rtc.pad_target(commitment.rows, horizon))
        weights = xp.asarray(rtc.soft_mask(horizon, commitment.delay, len(commitment.rows)), dtype=xp.float32)
        most = model.rtc.max_guidance_weight
        if VJP not in self.engines:
            rows = rtc.sample_guided_identity(velocity, start, steps, target, weights, most)
            return commitment.put_back(self._to_host(rows))

        def with_pull_back(x: Any, tau: float) -> Any:
            times = xp.full((1, horizon), tau, dtype=xp.float32)

            def pull_back(cotangent: Any) -> Any:
                tensors = {**context, "x": x[None], "time": times, "cotangent": cotangent[None].astype(xp.float32)}
                return self._run(VJP, tensors)["vjp"][0]

            return velocity(x, tau), pull_back

        return commitment.put_back(
            self._to_host(rtc.sample_guided(with_pull_back, start, steps, target, weights, most))
        )

    def _to_host(self, rows: Any) -> np.ndarray:
        return rows if self._xp is np else self._xp.asnumpy(rows)

    def _commitment(self, prefix: Prefix | None, delay_steps: int, state: np.ndarray) -> Commitment | None:
        if prefix is None or delay_steps <= 0:
            return None
        positions = np.asarray(prefix.positions, np.float64)
        if positions.ndim != 2 or positions.shape[1] != len(self.space.joints):
            raise ObservationError(f"prefix has shape {list(positions.shape)}, expected (d, {len(self.space.joints)})")
        _checked(positions, positions.shape, "prefix")
        if delay_steps > len(positions):
            raise ObservationError(f"delay_steps is {delay_steps}, but the prefix has {len(positions)} rows")
        model = self.bundle.policy.rtc
        count = min(delay_steps, model.max_delay_steps if model.prefix_trained else self.space.horizon - 1)
        if count == 0:
            return None
        # A trained prefix is hard and ends with the delay; guidance also knows what was planned after it.
        known = count if model.prefix_trained else min(len(positions), self.space.horizon)
        return Commitment(self.space.from_radians(positions[:known], state), count)

    def _run(self, stage: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        engine = self.engines[stage]
        given = {name: _cast(tensors[name], spec) for name, spec in engine.inputs.items() if name in tensors}
        return engine.run(given)


def make(bundle: Bundle, engines: dict[str, Engine]) -> FlowPolicy:
    """Build the policy of a ``flow`` bundle."""
    return FlowPolicy(bundle, engines)


def _cast(value: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Change between float types, and from a bool mask to numbers; never the shape."""
    return value if str(value.dtype) == spec.dtype else value.astype(spec.dtype)


def _checked(values, shape: tuple[int, ...], label: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise ObservationError(f"{label} has shape {list(array.shape)}, this policy reads {list(shape)}")
    if not np.isfinite(array).all():
        raise ObservationError(f"{label} has a value that is not finite: {array.tolist()}")
    return array


@contextmanager
def _timed(stage_ms: dict[str, float], name: str):
    start = clock.perf_counter()
    yield
    stage_ms[name] = (clock.perf_counter() - start) * 1e3
