"""Corrections (DAgger) while training runs: drive with the newest checkpoint, label with the expert. A process."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

EPISODES_PER_SHARD = 8
FIRST_SEED = 100_000  # scenes of corrections; the expert's own start at 0
LONGEST_TICKS = 260
WAIT_SHARE = 0.2  # corrections of a policy that knows nothing are worth little
DELAYS, EXECUTED = (0, 13), (15, 36)  # ranges of committed ticks and of executed ticks, drawn per episode


def main() -> None:
    """Add shards to the data folder until told to stop (SIGTERM)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    args = parser.parse_args()
    os.nice(5)
    import torch

    torch.set_num_threads(1)
    time.sleep(args.minutes * 60 * WAIT_SHARE)
    first = FIRST_SEED + sum(EPISODES_PER_SHARD for _ in (args.data / "shards").glob("policy-*"))
    while True:
        correct(args.data, args.seed, first)
        first += EPISODES_PER_SHARD


def correct(data: Path, seed: int, first: int) -> None:
    """Make one shard of corrections with scenes ``first``, ``first + 1``, ...; waits for a checkpoint."""
    import numpy as np

    from vla_runtime.sim.arm import Arm
    from vla_runtime.sim.expert import Expert
    from vla_runtime.toolchain.train_demo.collect import Recorder
    from vla_runtime.toolchain.train_demo.evaluate import TorchDriver
    from vla_runtime.toolchain.train_demo.records import ShardWriter
    from vla_runtime.toolchain.train_demo.train import load_checkpoint

    checkpoints = sorted((data / "checkpoints").glob("*.safetensors"))
    if not checkpoints:
        time.sleep(10)
        return
    model, mean, std, _ = load_checkpoint(checkpoints[-1])
    rng = np.random.default_rng([seed, 2, first])
    driver = TorchDriver(model, mean, std, first)
    shard = ShardWriter(data / "shards", f"policy-{first:06d}")
    arm = Arm(first)
    recorder = Recorder(arm, Expert(), rng)
    lifted = 0
    for scene in range(first, first + EPISODES_PER_SHARD):
        delay, execute = int(rng.integers(*DELAYS)), int(rng.integers(*EXECUTED))
        lifted += recorder.policy_episode(scene, shard, driver, delay, execute, LONGEST_TICKS)
    arm.close()
    shard.close()
    print(
        f"corrections {first}: {checkpoints[-1].name} lifted {lifted}/{EPISODES_PER_SHARD}, {len(shard)} rows",
        flush=True,
    )


if __name__ == "__main__":
    main()
