"""A quick closed loop on simulated time, for training's own use: chunks executed as they are, with a modelled delay.

The figure that counts is `vla demo`'s, through the executor and the watchdog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from vla_runtime.sim.arm import Arm
from vla_runtime.sim.expert import TICK_S
from vla_runtime.sim.scene import CAMERAS
from vla_runtime.sim.task import EVALUATION_SEED, TIME_LIMIT_S
from vla_runtime.toolchain.parity.statistics import wilson
from vla_runtime.toolchain.train_demo.model import DemoVla
from vla_runtime.toolchain.train_demo.pool import normalise
from vla_runtime.toolchain.train_demo.text import build_tokenizer, encode
from vla_runtime.toolchain.train_demo.train import sample


@dataclass
class Tally:
    """Counts of an evaluation; ``jumps``: the first new command against the old plan's, rad, one per seam."""

    episodes: int = 0
    successes: int = 0
    wrong: int = 0
    ticks: list[int] = field(default_factory=list)
    jumps: list[float] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        low, high = wilson(self.successes, self.episodes)
        return (
            f"{self.successes}/{self.episodes} lifted (95 %: {low:.3f}..{high:.3f}), wrong {self.wrong}, "
            f"median {np.median(self.ticks or [0]) * TICK_S:.2f} s, "
            f"seams p50 {np.median(self.jumps or [0]):.4f} p95 {np.quantile(self.jumps or [0], 0.95):.4f} rad"
        )


class TorchDriver:
    """Computes chunks with the PyTorch model; callable as collect.Driver."""

    def __init__(self, model: DemoVla, mean: np.ndarray, std: np.ndarray, seed: int):
        self.model, self.mean, self.std = model.eval(), mean, std
        self.tokenizer, self.rng = build_tokenizer(), np.random.default_rng([seed, 23])

    @torch.inference_mode()
    def __call__(self, arm: Arm, committed: np.ndarray) -> np.ndarray:
        """Return the chunk (50, 6), rad, that goes on from ``committed`` (d, 6)."""
        images = normalise(torch.from_numpy(np.stack([arm.render(camera) for camera in CAMERAS])[None]))
        tokens, mask = (torch.from_numpy(part)[None] for part in encode(self.tokenizer, arm.scene.instruction))
        state = torch.from_numpy((arm.q - self.mean) / self.std).float()[None]
        noise = torch.from_numpy(self.rng.standard_normal((1, self.model.config.horizon, 6), dtype=np.float32))
        given = torch.from_numpy((committed - self.mean) / self.std).float()[None] if len(committed) else None
        out = sample(self.model, (images, tokens, mask), state, noise, given)[0].numpy()
        return (out * self.std + self.mean).astype(float)


def evaluate(
    driver: Callable[[Arm, np.ndarray], np.ndarray],
    seeds: range,
    delay: int = 2,
    execute: int = 25,
    arm: Arm | None = None,
    instruction: Callable[[int], str] | None = None,
) -> Tally:
    """Run episodes from home on unseen ``seeds`` (all at or above EVALUATION_SEED).

    A new chunk is asked for ``delay`` ticks before the running one's ``execute`` ticks are used up; the ``delay``
    commands in between are given to the driver as the committed prefix.
    """
    if seeds and min(seeds) < EVALUATION_SEED:
        raise ValueError(f"evaluation seeds start at {EVALUATION_SEED}, got {min(seeds)}")
    arm, tally = arm or Arm(seeds[0]), Tally()
    for seed in seeds:
        arm.reset(seed, instruction(seed) if instruction else None)
        kept = max(1, delay)  # commands that are under way when a chunk is asked for, this tick's included
        coming, done, wrong = [arm.targets] * kept, False, False
        for tick in range(round(TIME_LIMIT_S / TICK_S)):
            if len(coming) == kept:
                chunk = driver(arm, np.array(coming[:delay]).reshape(-1, 6))
                if tick:
                    tally.jumps.append(float(np.abs(chunk[kept] - coming[-1]).max()))
                coming = [*coming, *chunk[kept : kept + execute]]
            coming = coming[1:]
            arm.drive(coming[0])
            outcome = arm.outcome()
            wrong = wrong or outcome.wrong_object
            if outcome.success:
                done = True
                tally.ticks.append(tick)
                break
        tally.episodes += 1
        tally.successes += done and not wrong
        tally.wrong += wrong
        if not done:
            tally.failures.append(seed)
    return tally
