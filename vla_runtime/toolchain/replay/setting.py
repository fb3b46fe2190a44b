"""Sets the stage for a rehearsal: limits, inputs, and who answers, from a bag and the command's options."""

import argparse
import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.limits import Limits
from vla_runtime.errors import UserError
from vla_runtime.toolchain.replay.answers import ActionsAsAnswers, Answers, AnswersAgain, BundleAnswers, RecordedAnswer
from vla_runtime.toolchain.replay.bagmap import BagMap, read_bag_map
from vla_runtime.toolchain.replay.exact import TYPES, read_traces
from vla_runtime.toolchain.replay.recording import Recording, Series, limits_for, read_recording

DEFAULT_LATENCY_S = 0.1


@dataclass
class Stage:
    """All that a rehearsal needs."""

    limits: Limits
    measured: Series
    answers: Answers
    duration: float
    start_ns: int
    mapping: BagMap
    executor: dict[str, Any] = field(default_factory=dict)
    watchdog: dict[str, Any] = field(default_factory=dict)


def scene(args: argparse.Namespace) -> Stage:
    """Set the stage. Raises UserError naming what the bag or the options lack."""
    mapping = read_bag_map(args.map) if args.map else BagMap()
    if args.robot:
        mapping = replace(mapping, robot=args.robot)
    policy = None
    if args.bundle:
        from vla_runtime.policy.policy import load_policy

        policy = load_policy(args.bundle, allow_unproven=args.allow_unproven)
        missing = [camera.name for camera in policy.bundle.policy.cameras if camera.name not in mapping.cameras]
        if missing and args.map:
            raise UserError(f"the mapping names no topic for the bundle's camera {', '.join(missing)}")
        cameras = {camera.name: f"/{camera.name}/image_raw" for camera in policy.bundle.policy.cameras}
        mapping = replace(mapping, cameras=mapping.cameras or cameras, actions="")
    recording = read_recording(args.bag, mapping)
    settings, limits = _from_traces(args.bag) if not args.map else ({}, None)
    if limits is None or mapping.robot:
        limits = limits_for(recording, mapping)
    stage = Stage(
        limits=limits,
        measured=recording.joints.pick(limits.joint_names),
        answers=_answers(args, mapping, recording, limits, policy),
        duration=recording.duration,
        start_ns=recording.start_ns,
        mapping=mapping,
        **settings,
    )
    if mapping.actions:
        # The step of a dataset says how often it was written, not how smooth it is: K fits the horizon.
        stage.executor.setdefault("k", max(1, int(mapping.horizon * mapping.dt_s / 0.02 / 3)))
    return stage


def _answers(args, mapping: BagMap, recording: Recording, limits: Limits, policy) -> Answers:
    latency = args.latency if args.latency is not None else mapping.latency_s if args.map else None
    if policy is not None:
        policy.warm_up()
        if latency is None:
            recorded = _recorded_answers(args.bag)
            latency = statistics.median(a.latency_s for a in recorded) if recorded else DEFAULT_LATENCY_S
        return BundleAnswers(policy, recording, limits.joint_names, latency)
    if recording.actions is not None:
        actions = recording.actions.pick(limits.joint_names)
        latency = DEFAULT_LATENCY_S if latency is None else latency
        return ActionsAsAnswers(actions, recording.joints.times, mapping.dt_s, mapping.horizon, latency)
    recorded = _recorded_answers(args.bag)
    if not recorded:
        raise UserError(
            f"'{args.bag}' has no answers of a policy (action_chunk) to use again: name the topic of the actions in a "
            "mapping (--map), or let a bundle answer (--bundle)"
        )
    if args.latency is not None:
        recorded = [RecordedAnswer(answer.chunk, args.latency) for answer in recorded]
    return AnswersAgain(recorded)


def _recorded_answers(bag) -> list[RecordedAnswer]:
    from vla_runtime.toolchain.run_log import read_run

    run = read_run(bag, images_every_s=None)
    asked = {request.plan_id: request.stamp for request in run.requests}
    found = []
    for chunk in run.chunks:
        if chunk.plan_id in asked and len(chunk.times) >= 2:
            dt = float(chunk.times[-1]) / (len(chunk.times) - 1)
            made = ActionChunk(chunk.stamp, dt, chunk.joint_names, chunk.positions, chunk.plan_id, chunk.received)
            found.append(RecordedAnswer(made, max(0.0, chunk.received - asked[chunk.plan_id])))
    return found


def _from_traces(bag) -> tuple[dict[str, dict[str, Any]], Limits | None]:
    """Settings and limits with which the recorded run began, if its traces say so."""
    from vla_runtime.nodes.trace import revive

    settings: dict[str, dict[str, Any]] = {}
    limits = None
    for session in read_traces(bag).sessions:
        start = {item[0]: revive(item[1], TYPES) for item in session.start["items"]}
        settings.setdefault(session.node, dict(vars(start["settings"])))
        limits = start["limits"]
    return settings, limits
