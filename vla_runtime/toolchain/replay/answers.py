"""Who answers the executor's requests in a rehearsal: the recorded answers, the recorded actions, or a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.request import PlanRequest
from vla_runtime.nodes.inference import Request, committed_prefix, noise_seed
from vla_runtime.policy.policy import Observation, Policy
from vla_runtime.toolchain.replay.recording import Frames, Recording, Series


class Answers(Protocol):
    """The policy of a rehearsal."""

    def ask(self, now: float, request: PlanRequest) -> ActionChunk | None:
        """Return the answer with the time at which it arrives in ``received``; None: none will come."""


class ActionsAsAnswers:
    """The actions that were taken are the plan, from the newest joint state on."""

    def __init__(self, actions: Series, stamps: np.ndarray, dt_s: float, horizon: int, latency_s: float):
        self._actions, self._stamps = actions, stamps
        self._dt, self._horizon, self._latency = dt_s, horizon, latency_s

    def ask(self, now: float, request: PlanRequest) -> ActionChunk | None:
        """A chunk of what was done then."""
        seen = int(np.searchsorted(self._stamps, now, side="right")) - 1
        if seen < 0:
            return None
        t0 = float(self._stamps[seen])
        positions = self._actions.at(t0 + self._dt * np.arange(self._horizon))
        return ActionChunk(t0, self._dt, self._actions.names, positions, request.request_id, now + self._latency)


@dataclass(frozen=True)
class RecordedAnswer:
    """An answer of the recorded run: the chunk, and how long it took."""

    chunk: ActionChunk
    latency_s: float


class AnswersAgain:
    """The recorded run's own answers. A request gets the newest whose observation had been made by then.

    Between the recorded observations nothing is known: a request that finds none that is new gets no answer.
    """

    def __init__(self, answers: Sequence[RecordedAnswer]):
        self._answers = sorted(answers, key=lambda answer: answer.chunk.t0)
        self._stamps = [answer.chunk.t0 for answer in self._answers]
        self._last = -1

    def ask(self, now: float, request: PlanRequest) -> ActionChunk | None:
        """The newest recorded answer that was not given yet."""
        i = int(np.searchsorted(self._stamps, now, side="right")) - 1
        if i <= self._last:
            return None
        self._last = i
        chunk, latency = self._answers[i].chunk, self._answers[i].latency_s
        return ActionChunk(chunk.t0, chunk.dt, chunk.joint_names, chunk.positions, request.request_id, now + latency)


class BundleAnswers:
    """A policy, run on the recorded pictures and joint states.

    Args:
        policy: a loaded and warmed-up policy.
        joint_names: the controller's joints, the order of a request's prefix.
        latency_s: how long an answer takes in the rehearsal, whatever it takes here.
    """

    def __init__(self, policy: Policy, recording: Recording, joint_names: tuple[str, ...], latency_s: float):
        model = policy.bundle.policy
        self._policy, self._latency = policy, latency_s
        self._state = recording.joints.pick(tuple(model.state.joints))
        self._action_joints = tuple(model.action.joints)
        self._dt = model.dt_s
        self._frames: dict[str, Frames] = {camera.name: recording.frames[camera.name] for camera in model.cameras}
        default = model.instruction.default if model.instruction is not None else ""
        self._instruction = recording.instruction or [(0.0, default)]
        self._used: dict[str, int] = {}
        self._order = [joint_names.index(name) for name in self._action_joints if name in joint_names]
        self._most = model.rtc.max_delay_steps if model.rtc.prefix_trained else model.horizon - 1

    def ask(self, now: float, request: PlanRequest) -> ActionChunk | None:
        """Run the policy on what had been seen by now; waits, as the node does, for pictures not used yet."""
        at = now
        for name, frames in self._frames.items():
            following = self._used.get(name, -1) + 1
            if following >= len(frames.times):
                return None
            at = max(at, frames.times[following])
        chosen = {name: frames.latest(at) for name, frames in self._frames.items()}
        self._used.update(chosen)
        stamps = [self._frames[name].times[i] for name, i in chosen.items()]
        seen = int(np.searchsorted(self._state.times, at, side="right")) - 1
        if seen < 0:
            return None
        t0 = min([*stamps, float(self._state.times[seen])])
        observation = Observation(
            t=t0,
            images={name: self._frames[name].decode[i]() for name, i in chosen.items()},
            state=self._state.rows[seen],
            instruction=[text for t, text in self._instruction if t <= at or t == self._instruction[0][0]][-1],
        )
        prefix, count = committed_prefix(self._as_the_node_gets_it(request, now), t0, self._dt, self._most)
        output = self._policy.infer(observation, prefix, count, noise_seed(request.request_id))
        return ActionChunk(t0, self._dt, self._action_joints, output.actions, request.request_id, at + self._latency)

    def _as_the_node_gets_it(self, request: PlanRequest, now: float) -> Request:
        """What of a request goes over the wire: the points up to the last committed one."""
        count = int((request.times < -1e-9).sum()) + request.committed
        if len(self._order) < len(self._action_joints):
            count = 0
        positions = request.positions[:count][:, self._order] if count else np.zeros((0, len(self._action_joints)))
        return Request(request.request_id, request.stamp, request.times[:count], positions, now)
