"""Observations from closed-loop episodes in the simulator: what a policy really gets to see."""

from collections.abc import Callable, Sequence

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.policy import Observation, Policy, PolicyOutput, Prefix, load_policy
from vla_runtime.toolchain.observations import ObservationSet
from vla_runtime.toolchain.parity.episodes import fits_simulator

FIRST_SEED = 2_000_000  # apart from seeds that are trained on or evaluated with


def record_observations(
    bundle: Bundle, seeds: Sequence[int], progress: Callable[[int, int], None] = lambda done, total: None
) -> ObservationSet:
    """Run one episode for each seed with the bundle on ONNX Runtime; return all that its policy was shown.

    Raises UserError for a policy of another arm than the simulated one.
    """
    if not fits_simulator(bundle.policy):
        name = bundle.policy.name
        raise UserError(f"{bundle.path}: the simulated arm lacks joints or cameras of {name}; record on the robot")
    from vla_runtime.sim.closed_loop import ClosedLoop

    listener = _Listener(load_policy(bundle, "onnxruntime", allow_unproven=True))
    with ClosedLoop(listener) as loop:
        for done, seed in enumerate(seeds):
            loop.run(seed)
            progress(done + 1, len(seeds))
    source = f"simulator, {len(seeds)} episodes from seed {seeds[0]}"
    return ObservationSet(listener.seen, source, np.arange(len(listener.seen)))


class _Listener:
    """A policy that remembers what it was shown."""

    def __init__(self, policy: Policy):
        self.bundle, self.engines, self._policy = policy.bundle, policy.engines, policy
        self.seen: list[Observation] = []

    def warm_up(self) -> None:
        self._policy.warm_up()

    def infer(
        self, observation: Observation, prefix: Prefix | None = None, delay_steps: int = 0, seed: int | None = None
    ) -> PolicyOutput:
        self.seen.append(observation)
        return self._policy.infer(observation, prefix, delay_steps, seed)
