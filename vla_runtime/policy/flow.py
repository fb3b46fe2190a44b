"""Flow-matching policies: vision once, backbone once, then the action expert step by step.

Time runs from noise (0) to clean (1): x += v / steps. A committed prefix is honoured in one of two ways:
training-time real-time chunking (arXiv 2512.05964), where the model has seen clean prefixes in training: before every
step the prefix rows are set to the committed actions and their time to 1; or guidance (arXiv 2506.07339), which pulls
an untrained model towards them.
"""

import time as clock
from contextlib import contextmanager

import numpy as np

from vla_runtime.engines.base import Engine, TensorSpec
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.errors import BundleError, ObservationError
from vla_runtime.policy.policy import Observation, PolicyOutput, Prefix
from vla_runtime.policy.preprocess import images_tensor
from vla_runtime.policy.space import ActionSpace
from vla_runtime.policy.tokenizer import InstructionTokenizer

STAGES = ("vision", "backbone", "action")


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
        committed = self._committed(prefix, delay_steps, state)
        with _timed(stage_ms, "action"):
            rows = self.sample(context, committed, self.noise(seed))
        actions = self.space.to_radians(rows, state)
        if committed is not None:
            # In radians too, so that what comes back is bit-equal to what was committed.
            actions[: len(committed)] = prefix.positions[: len(committed)]
        return PolicyOutput(actions, stage_ms, {"committed_steps": float(0 if committed is None else len(committed))})

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

    def sample(self, context: dict[str, np.ndarray], committed: np.ndarray | None, noise: np.ndarray) -> np.ndarray:
        """Integrate the flow; return (H, width) normalised rows. ``committed``: (d, width) or None."""
        steps = self.bundle.policy.sampler.steps
        count = 0 if committed is None else len(committed)
        guided = count and not self.bundle.policy.rtc.prefix_trained
        xp = self._xp
        x = xp.array(noise, dtype=xp.float32)
        rows = None if committed is None else xp.asarray(committed)
        time = xp.zeros((1, self.space.horizon), dtype=xp.float32)
        for step in range(steps):
            time[:] = step / steps
            if count and not guided:
                x[0, :count] = rows
                time[0, :count] = 1.0
            v = self._run("action", {**context, "x": x, "time": time})["v"]
            if guided:
                v = self._guide(v, x, step / steps, rows)
            x = x + v.astype(xp.float32) / np.float32(steps)
        if count:
            x[0, :count] = rows
        return x[0] if xp is np else xp.asnumpy(x[0])

    def _guide(self, v: np.ndarray, x: np.ndarray, tau: float, committed: np.ndarray) -> np.ndarray:
        raise BundleError(
            f"bundle {self.bundle.path}: rtc.prefix_trained is false, and guidance is not available; send no prefix"
        )

    def _committed(self, prefix: Prefix | None, delay_steps: int, state: np.ndarray) -> np.ndarray | None:
        if prefix is None or delay_steps <= 0:
            return None
        positions = np.asarray(prefix.positions, np.float64)
        if positions.ndim != 2 or positions.shape[1] != len(self.space.joints):
            raise ObservationError(f"prefix has shape {list(positions.shape)}, expected (d, {len(self.space.joints)})")
        _checked(positions, positions.shape, "prefix")
        if delay_steps > len(positions):
            raise ObservationError(f"delay_steps is {delay_steps}, but the prefix has {len(positions)} rows")
        most = self.space.horizon - 1
        if self.bundle.policy.rtc.prefix_trained:
            most = self.bundle.policy.rtc.max_delay_steps
        count = min(delay_steps, most)
        return self.space.from_radians(positions[:count], state) if count else None

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
