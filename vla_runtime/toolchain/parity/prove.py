"""Runs the levels of parity in order and adds them up."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from vla_runtime.engines.base import Engine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.policy.bundle import POLICY_FILE, Bundle, sha256_of
from vla_runtime.policy.policy import Policy, load_policy
from vla_runtime.toolchain.observations import ObservationSet
from vla_runtime.toolchain.parity.budgets import Budgets
from vla_runtime.toolchain.parity.closed_loop import Episode, Progress, compare_closed_loop
from vla_runtime.toolchain.parity.contract import compare_contracts
from vla_runtime.toolchain.parity.layers import compare_layers
from vla_runtime.toolchain.parity.levels import FAIL, IMPLIED, MISSING, PASS, Level, overall
from vla_runtime.toolchain.parity.stages import Recorder, calls_of, compare_stages
from vla_runtime.toolchain.parity.ticks import compare_ticks
from vla_runtime.toolchain.parity.trajectories import compare_trajectories, forward_kinematics


@dataclass(frozen=True)
class Request:
    """What is to be proved.

    ``candidate`` on ``engine`` against ``reference`` (a bundle; itself, run exactly, by default) on ``observations``.
    ``checkpoint``: observations with the answers of the checkpoint's own code, where there are any.
    ``episode``: runs one closed-loop episode, where actions differ at all; None leaves that level out.
    ``seeds``: of the episodes.
    """

    candidate: Bundle
    engine: str
    observations: ObservationSet
    budgets: Budgets
    reference: Bundle | None = None
    checkpoint: ObservationSet | None = None
    settings: EngineSettings = EngineSettings()
    episode: Episode | None = None
    seeds: Sequence[int] = ()
    per_layer: bool = False


def prove(request: Request, progress: Progress = lambda done, total: None) -> dict[str, Any]:
    """Run the levels; return the record: ``verdict``, ``levels``, ``stages``, ``episodes``, ``ci``, and what it covers.

    A contract that differs ends the comparison: numbers of policies that see different things mean nothing.
    """
    reference_bundle = request.reference or request.candidate
    levels = [compare_contracts(reference_bundle.policy, request.candidate.policy)]
    candidate = load_policy(request.candidate, request.engine, allow_unproven=True, settings=request.settings)
    if levels[0].verdict == PASS:
        levels += _numbers(request, reference_bundle, candidate, progress)
    return _record(request, reference_bundle, candidate, levels)


def _numbers(request: Request, reference_bundle: Bundle, candidate: Policy, progress: Progress) -> list[Level]:
    budgets, policy = request.budgets, request.candidate.policy
    recorder = Recorder()
    exact = EngineSettings(threads=request.settings.threads, exact=True)
    reference = load_policy(reference_bundle, "onnxruntime", allow_unproven=True, settings=exact, wrap=recorder.wrap)
    wanted = _chunks(reference, request.observations)
    calls = list(recorder.calls)
    if not np.array_equal(_chunks(reference, request.observations.first(1)), wanted[:1]):
        return [Level("ticks", FAIL, ["the harness is broken: the reference run twice gives two answers"])]
    levels = [compare_stages(candidate.engines, calls, budgets.stages, budgets.tokens)]
    if request.per_layer:
        levels.append(compare_layers(reference_bundle, request.candidate, calls))
    found = _chunks(candidate, request.observations)
    std, joints = policy.joint_std, policy.action.joints
    levels.append(compare_ticks(wanted, found, std, joints, budgets.ticks))
    if request.checkpoint is not None:
        levels += _checkpoint(request, request.checkpoint, candidate)
    levels.append(compare_trajectories(wanted, found, forward_kinematics(joints), budgets.trajectories))
    if any(level.verdict == FAIL for level in levels):
        levels.append(Level("closed_loop", MISSING, ["not run: an earlier level failed"]))
    else:
        levels.append(_closed_loop(request, reference_bundle, candidate, float(np.abs(found - wanted).max()), progress))
    return levels


def _checkpoint(request: Request, answers: ObservationSet, candidate: Policy) -> list[Level]:
    """Compare with the checkpoint's own code: each stage on the tensors that it had there, and whole chunks."""
    budgets, policy, levels = request.budgets, request.candidate.policy, []
    if answers.tensors:
        found = compare_stages(candidate.engines, calls_of(policy, answers.tensors), budgets.stages, budgets.tokens)
        levels.append(replace(found, name="checkpoint_stages"))
    if answers.actions is not None:
        chunks = _chunks(candidate, answers)
        found = compare_ticks(answers.actions, chunks, policy.joint_std, policy.action.joints, budgets.ticks)
        levels.append(replace(found, name="checkpoint"))
    return levels


def _closed_loop(
    request: Request, reference_bundle: Bundle, candidate: Policy, worst_rad: float, progress: Progress
) -> Level:
    budget = request.budgets.closed_loop
    if worst_rad <= budget.implied_below_rad:
        text = f"every action agrees within {worst_rad:.1e} rad: below {budget.implied_below_rad:.0e} none are needed"
        return Level("closed_loop", IMPLIED, [], {"note": text})
    if request.episode is not None and request.seeds:
        reference = load_policy(reference_bundle, "onnxruntime", allow_unproven=True, settings=request.settings)
        return compare_closed_loop(reference, candidate, request.episode, request.seeds, budget, progress)
    return Level("closed_loop", MISSING, ["no episodes were run"])


def _chunks(policy: Policy, observations: ObservationSet) -> np.ndarray:
    pairs = zip(observations.observations, observations.seeds)
    return np.stack([policy.infer(each, seed=int(seed)).actions for each, seed in pairs])


def _record(request: Request, reference: Bundle, candidate: Policy, levels: list[Level]) -> dict[str, Any]:
    by_name = {level.name: level for level in levels}
    closed = by_name["closed_loop"].figures if "closed_loop" in by_name else {}
    stages = by_name["stages"].figures.get("outputs", []) if "stages" in by_name else []
    engine = next(iter(candidate.engines.values()))
    return {
        "engine": engine.name,
        "engine_version": _versions(candidate.engines),
        "device": request.settings.device,
        "verdict": overall(levels, request.budgets.required),
        "levels": {level.name: _plain(level) for level in levels},
        "stages": stages,
        "episodes": closed.get("episodes", 0),
        "ci": closed.get("ci", {}),
        "policy_sha256": sha256_of(request.candidate.path / POLICY_FILE),
        "files": request.candidate.hashes(),
        "reference": {
            "name": reference.policy.name,
            "policy_sha256": sha256_of(reference.path / POLICY_FILE),
            "files": reference.hashes(),
        },
        "observations": {"count": len(request.observations), "source": request.observations.source},
        "checkpoint": request.checkpoint.source if request.checkpoint else None,
        "budgets": request.budgets.model_dump(),
        "made_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _versions(engines: Mapping[str, Engine]) -> str:
    """Return the engines' version, with the stages that each ran where they differ."""
    stages = defaultdict(list)
    for stage, engine in engines.items():
        stages[getattr(engine, "version", "unknown")].append(stage)
    if len(stages) == 1:
        return next(iter(stages))
    return "; ".join(f"{version} ({', '.join(names)})" for version, names in stages.items())


def _plain(level: Level) -> dict[str, Any]:
    content = asdict(level)
    del content["name"]
    return content
