"""Time a bundle against LeRobot's own PyTorch: the same weights, picture, state, text, noise and threads, in turns.

LeRobot runs in processes of its own, in its own environment (`make setup-peers`). All contenders are loaded before the
first measurement and take turns, round by round, so that a busy moment of the machine meets all of them; while one
computes, the others wait for a line on their standard input.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vla_runtime.engines.settings import EngineSettings
from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import Bundle, sha256_of
from vla_runtime.policy.flow import FlowPolicy
from vla_runtime.policy.policy import Observation, Policy, load_policy
from vla_runtime.toolchain.observations import random_observations

PEERS = Path(".venv-peers/bin/python")
SEED = 0
KINDS = {"smolvla": ("fp32", "bf16"), "act": ("fp32",)}


@dataclass(frozen=True)
class Times:
    """One contender's times in ms over all rounds, and how far its normalised actions are from LeRobot's fp32."""

    wall_ms: list[float]
    cpu_ms: list[float]
    max_abs_difference: float

    def summary(self) -> dict[str, float]:
        """Return what goes into the report."""
        return {
            "p50_ms": float(np.median(self.wall_ms)),
            "min_ms": min(self.wall_ms),
            "cpu_p50_ms": float(np.median(self.cpu_ms)),
            "max_abs_difference": self.max_abs_difference,
        }


class Ours:
    """Our pipeline, pictures to actions, with one engine."""

    def __init__(self, bundle: Bundle, engine: str, threads: int, observation: Observation):
        settings = EngineSettings(threads=threads)
        self.policy = load_policy(bundle, engine, allow_unproven=True, settings=settings)
        self.observation = observation
        self.stage_ms: list[dict[str, float]] = []

    def run(self) -> tuple[float, float]:
        """Infer once; return wall and CPU ms."""
        wall, cpu = time.perf_counter(), time.process_time()
        made = self.policy.infer(self.observation, seed=SEED)
        spent = (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3
        self.stage_ms.append(made.stage_ms)
        action = self.policy.bundle.policy.action
        self.actions = (made.actions - np.asarray(action.mean)) / np.asarray(action.std)
        return spent

    def close(self) -> None:
        """Nothing to end."""


class LeRobot:
    """LeRobot's pipeline in its own process."""

    def __init__(self, python: Path, checkpoint: Path, kind: str, precision: str, threads: int, folder: Path):
        self._file = folder / f"{precision}.safetensors"
        command = [str(python), "-m", "vla_runtime.toolchain.against.lerobot_worker", str(checkpoint), kind, precision]
        command += [str(threads), str(folder / "inputs.safetensors"), str(self._file)]
        # A spinning OpenMP barrier stalls on shared cores by a factor of 25; both sides wait passively.
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def run(self) -> tuple[float, float]:
        """Ask for one chunk; return its wall and CPU ms, as measured over there."""
        from safetensors.numpy import load_file

        self._process.stdin.write("\n")
        self._process.stdin.flush()
        times = self._answer()
        self.actions = load_file(str(self._file))["actions"][0]
        return times["wall_ms"], times["cpu_ms"]

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise UserError(f"LeRobot's process ended with {self._process.wait()}; its own message is above")
        return json.loads(line)


def compare(
    ours: Sequence[tuple[Bundle, str]],
    checkpoint: Path,
    *,
    threads: int,
    rounds: int,
    warm_up: int = 1,
    python: Path = PEERS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict:
    """Return figures by contender ('lerobot fp32', 'lerobot bf16', 'NAME onnxruntime', ...) and the speed-up.

    ``ours``: bundles of one checkpoint, in whatever precision, each with the engine that runs it.
    ``checkpoint``: what they were exported from. ``speed_up``: the faster LeRobot's median over each of ours.
    Raises UserError when LeRobot's environment is missing or the weights differ.
    """
    kind = [check(bundle, checkpoint, python) for bundle, _ in ours][0]
    observation = random_observations(ours[0][0].policy, 1).observations[0]
    observation = replace(observation, instruction=observation.instruction or "pick up the cube")
    contenders: dict[str, Ours | LeRobot] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            for bundle, engine in ours:
                contenders[f"{bundle.policy.name} {engine}"] = Ours(bundle, engine, threads, observation)
            first = next(iter(contenders.values())).policy
            _write_batch(folder / "inputs.safetensors", first, observation)
            for precision in KINDS[kind]:
                label = f"lerobot {precision}"
                contenders[label] = LeRobot(python, checkpoint, kind, precision, threads, folder)
            times: dict[str, list[tuple[float, float]]] = {label: [] for label in contenders}
            for turn in range(warm_up + rounds):
                for label, contender in contenders.items():
                    spent = contender.run()
                    if turn >= warm_up:
                        times[label].append(spent)
                progress(turn + 1, warm_up + rounds)
            reference = contenders["lerobot fp32"].actions
            report = {
                label: Times(*(list(each) for each in zip(*times[label])), _gap(contender.actions, reference)).summary()
                for label, contender in contenders.items()
            }
        finally:
            for contender in contenders.values():
                contender.close()
    for label, contender in contenders.items():
        if isinstance(contender, Ours):
            stages = contender.stage_ms[warm_up:]
            report[label]["stages_p50_ms"] = {
                stage: float(np.median([each[stage] for each in stages])) for stage in stages[0]
            }
    theirs = {label for label, contender in contenders.items() if isinstance(contender, LeRobot)}
    fastest = min(report[label]["p50_ms"] for label in theirs)
    speed_up = {label: fastest / figures["p50_ms"] for label, figures in report.items() if label not in theirs}
    return {"threads": threads, "rounds": rounds, "contenders": report, "speed_up": speed_up}


def check(bundle: Bundle, checkpoint: Path, python: Path = PEERS) -> str:
    """Return the checkpoint's type; UserError when the bundle was made of other weights, or LeRobot is missing."""
    provenance = bundle.policy.provenance
    kind, weights = provenance.get("checkpoint"), provenance.get("weights", {})
    if kind not in KINDS:
        raise UserError(f"{bundle.path} was not exported from one of LeRobot's {sorted(KINDS)}: checkpoint is {kind!r}")
    for name, expected in weights.items():
        if not (checkpoint / name).is_file() or sha256_of(checkpoint / name) != expected:
            raise UserError(f"{checkpoint / name} is not the file that {bundle.path} was exported from")
    if not Path(python).is_file():
        raise UserError(f"{python} is missing: LeRobot runs in an environment of its own (make setup-peers)")
    return kind


def _write_batch(path: Path, policy: Policy, observation: Observation) -> None:
    """Write what LeRobot's processors would hand to the model: raw pictures for SmolVLA, normalised ones for ACT."""
    from safetensors.numpy import save_file

    model = policy.bundle.policy
    state = (observation.state - np.asarray(model.state.mean)) / np.asarray(model.state.std)
    batch = {"observation.state": state.astype(np.float32)[None]}
    tensors = policy.inputs(observation, observation.state)
    for index, camera in enumerate(model.cameras):
        if isinstance(policy, FlowPolicy):  # SmolVLA resizes and normalises pictures itself
            picture = observation.images[camera.name].transpose(2, 0, 1).astype(np.float32) / 255
        else:
            picture = np.asarray(tensors["images"][index])
        batch[f"observation.images.{camera.name}"] = np.ascontiguousarray(picture)[None]
    if model.instruction is not None:
        batch["observation.language.tokens"] = np.asarray(tensors["text_tokens"])
        batch["observation.language.attention_mask"] = np.asarray(tensors["text_mask"]).astype(bool)
    if isinstance(policy, FlowPolicy):
        batch["noise"] = policy.noise(SEED)
    save_file(batch, str(path))


def _gap(actions: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(np.asarray(actions, np.float64) - reference.astype(np.float64)).max())
