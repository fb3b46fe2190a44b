"""Flow-matching policies: vision once, backbone once, then the action expert step by step.

Time runs from noise (0) to clean (1): x += v / steps. A committed prefix is honoured in one of two ways:
training-time real-time chunking (arXiv 2512.05964), where the model has seen clean prefixes in training: before every
step the prefix rows are set to the committed actions and their time to 1; or guidance (arXiv 2506.07339), which pulls
an untrained model towards them and softly towards what was planned after them: through the exact vector-Jacobian
product where the bundle has the stage `action_vjp`, else with the Jacobian taken for the identity.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_runtime.engines.base import Engine
from vla_runtime.policy import rtc
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.errors import ObservationError
from vla_runtime.policy.policy import Prefix
from vla_runtime.policy.staged import StagedPolicy, checked

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


class FlowPolicy(StagedPolicy):
    """Drives vision, backbone and action of a ``flow`` bundle. Implements ``Policy``."""

    needs = STAGES

    def last_step(self, context: dict[str, Any], commitment: Commitment | None, seed: int | None) -> np.ndarray:
        """Integrate the flow from seeded noise."""
        return self.sample(context, commitment, self.noise(seed))

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
            return self.run_stage("action", {**context, "x": x[None], "time": times})["v"][0].astype(xp.float32)

        if commitment is None:
            return self.to_host(rtc.sample(velocity, start, steps))
        if model.rtc.prefix_trained:
            rows, x = xp.asarray(commitment.rows), xp.array(start)
            clean = xp.arange(horizon) < commitment.delay
            for step in range(steps):
                x[: commitment.delay] = rows
                x = x + velocity(x, xp.where(clean, 1.0, step / steps)) / steps
            return commitment.put_back(self.to_host(x))
        target = xp.asarray(rtc.pad_target(commitment.rows, horizon))
        weights = xp.asarray(rtc.soft_mask(horizon, commitment.delay, len(commitment.rows)), dtype=xp.float32)
        most = model.rtc.max_guidance_weight
        if VJP not in self.engines:
            rows = rtc.sample_guided_identity(velocity, start, steps, target, weights, most)
            return commitment.put_back(self.to_host(rows))

        def with_pull_back(x: Any, tau: float) -> Any:
            times = xp.full((1, horizon), tau, dtype=xp.float32)

            def pull_back(cotangent: Any) -> Any:
                tensors = {**context, "x": x[None], "time": times, "cotangent": cotangent[None].astype(xp.float32)}
                return self.run_stage(VJP, tensors)["vjp"][0]

            return velocity(x, tau), pull_back

        return commitment.put_back(self.to_host(rtc.sample_guided(with_pull_back, start, steps, target, weights, most)))

    def commitment(self, prefix: Prefix | None, delay_steps: int, state: np.ndarray) -> Commitment | None:
        """Return the rows that are known. With training-time RTC at most ``rtc.max_delay_steps`` of them count."""
        if prefix is None or delay_steps <= 0:
            return None
        positions = np.asarray(prefix.positions, np.float64)
        if positions.ndim != 2 or positions.shape[1] != len(self.space.joints):
            raise ObservationError(f"prefix has shape {list(positions.shape)}, expected (d, {len(self.space.joints)})")
        checked(positions, positions.shape, "prefix")
        if delay_steps > len(positions):
            raise ObservationError(f"delay_steps is {delay_steps}, but the prefix has {len(positions)} rows")
        model = self.bundle.policy.rtc
        count = min(delay_steps, model.max_delay_steps if model.prefix_trained else self.space.horizon - 1)
        if count == 0:
            return None
        # A trained prefix is hard and ends with the delay; guidance also knows what was planned after it.
        known = count if model.prefix_trained else min(len(positions), self.space.horizon)
        return Commitment(self.space.from_radians(positions[:known], state), count)


def make(bundle: Bundle, engines: dict[str, Engine]) -> FlowPolicy:
    """Build the policy of a ``flow`` bundle."""
    return FlowPolicy(bundle, engines)
