"""Chooses the observations that quantisation calibrates on, and runs them up to the stage in question."""

from collections.abc import Callable

import numpy as np

from vla_runtime.engines.settings import EngineSettings
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.policy import load_policy
from vla_runtime.toolchain.observations import ObservationSet
from vla_runtime.toolchain.parity.stages import Recorder


def choose(available: ObservationSet, count: int, seed: int = 0) -> ObservationSet:
    """Return ``count`` observations: half drawn at random, half spread out so that rare poses are in it.

    The second half is chosen greedily, each the farthest from all chosen before (k-centre), by state in units of its
    spread, instructions counting too: what is rare in the recordings is where a robot fails.
    """
    total = len(available)
    if count >= total:
        return available
    rng = np.random.default_rng(seed)
    chosen = [int(i) for i in rng.permutation(total)[: (count + 1) // 2]]
    features = _features(available)
    distance = np.full(total, np.inf)
    for index in chosen:
        distance = np.minimum(distance, np.linalg.norm(features - features[index], axis=1))
    while len(chosen) < count:
        farthest = int(distance.argmax())
        chosen.append(farthest)
        distance = np.minimum(distance, np.linalg.norm(features - features[farthest], axis=1))
        distance[farthest] = -1.0
    chosen.sort()
    actions = None if available.actions is None else available.actions[chosen]
    return ObservationSet(
        [available.observations[i] for i in chosen], available.source, np.asarray(available.seeds)[chosen], actions
    )


def stage_inputs(
    bundle: Bundle, stage: str, observations: ObservationSet, progress: Callable[[int, int], None]
) -> list[dict[str, np.ndarray]]:
    """Run the unquantised policy and return what reached ``stage``, one dict for each of its runs."""
    recorder = Recorder()
    policy = load_policy(bundle, "onnxruntime", allow_unproven=True, settings=EngineSettings(), wrap=recorder.wrap)
    found = []
    for done, (observation, seed) in enumerate(zip(observations.observations, observations.seeds)):
        policy.infer(observation, seed=int(seed))
        found += [call.inputs for call in recorder.calls if call.stage == stage]
        recorder.calls.clear()
        progress(done + 1, len(observations))
    return found


def _features(available: ObservationSet) -> np.ndarray:
    states = np.stack([each.state for each in available.observations])
    spread = np.maximum(states.std(axis=0), 1e-6)
    words = sorted({each.instruction for each in available.observations})
    codes = np.zeros((len(states), len(words)))
    for row, each in enumerate(available.observations):
        codes[row, words.index(each.instruction)] = 2.0
    return np.concatenate([(states - states.mean(axis=0)) / spread, codes], axis=1)
