"""LeRobot's SmolVLA or ACT in a process of its own, asked over standard input; runs in the peers' environment.

    python -m vla_runtime.toolchain.against.lerobot_worker CHECKPOINT KIND fp32|bf16 THREADS INPUTS ACTIONS

Every line on standard input is answered by one line of JSON, the wall and CPU milliseconds of one
`predict_action_chunk` on INPUTS (safetensors: LeRobot's batch and `noise`); its normalised actions go to ACTIONS.
"""

import json
import sys
import time
from pathlib import Path


def main(checkpoint: str, kind: str, precision: str, threads: str, inputs: str, actions: str) -> None:
    """Load, say so with an empty object, and answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # LeRobot prints; the answers must stay alone
    import torch
    from safetensors.torch import load_file, save_file

    from vla_runtime.toolchain.export.lerobot_load import load_policy

    torch.set_num_threads(int(threads))
    policy = load_policy(Path(checkpoint), kind)
    if precision == "bf16":
        half_precision(policy, kind)
    batch = load_file(inputs)
    options = {"noise": batch.pop("noise")} if "noise" in batch else {}
    print("{}", file=answers, flush=True)
    for _ in sys.stdin:
        policy.reset()
        wall, cpu = time.perf_counter(), time.process_time()
        with torch.inference_mode():
            chunk = policy.predict_action_chunk(dict(batch), **options)
        times = {"wall_ms": (time.perf_counter() - wall) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}
        save_file({"actions": chunk.float().contiguous()}, actions)
        print(json.dumps(times), file=answers, flush=True)


def half_precision(policy, kind: str) -> None:
    """Put the transformers into bfloat16, as LeRobot does when it loads SmolVLA's language model itself.

    Its own projections of state, actions and time stay in float32: it casts round them.
    """
    import torch

    if kind != "smolvla":
        raise SystemExit(f"'{kind}' has no bfloat16 form in LeRobot")
    policy.model.vlm_with_expert.to(torch.bfloat16)


if __name__ == "__main__":
    main(*sys.argv[1:])
