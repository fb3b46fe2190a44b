"""The five silences that the watchdog measures, each against its deadline.

A deadline is noticed when it passes, so every age here is computed from ``now``; nothing waits for a late result.
Nothing here trusts what the executor says about a plan: the age of an observation comes from the answers themselves.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from vla_runtime.control.finite import all_finite
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog_settings import WatchdogSettings

_REMEMBERED = 64  # answers and open requests kept; a policy at 50 Hz refills this in 1.3 s
_FUTURE_S = 0.02  # a stamp this far ahead is another clock, not a rounding error


@dataclass(frozen=True)
class Silence:
    """A deadline that has passed.

    Attributes:
        stage: what was silent: ``stream``, ``answer``, ``policy``, ``observation`` or ``joints``.
        age_s: how long it has been silent, seconds.
        deadline_s: the deadline that this broke, seconds.
        text: the same in words, for people.
    """

    stage: str
    age_s: float
    deadline_s: float
    text: str


def _passed(age_s: float, deadline_s: float) -> bool:
    # One microsecond of slack: an age that equals the deadline must not depend on rounding.
    return age_s > deadline_s + 1e-6


class PolicyWatch:
    """Requests, answers and heartbeats: is the policy alive, and how old is what it saw?"""

    def __init__(self) -> None:
        self._open: OrderedDict[str, float] = OrderedDict()  # unanswered request id -> when it was seen
        self._answered: OrderedDict[str, float] = OrderedDict()  # request id -> t0 of the observation
        self._beat_at: float | None = None  # last heartbeat that said "ready"
        self._heard_at: float | None = None
        self.status = ""  # last heartbeat's text
        self.answers = 0
        self.odd_stamps = 0  # observation stamps that were not finite or lay in the future

    def saw_request(self, now: float, request_id: str) -> None:
        """Note that the executor asked; a new epoch (executor restarted) drops what its predecessor waited for."""
        epoch = request_id.rpartition(":")[0]
        for other in [r for r in self._open if r.rpartition(":")[0] != epoch]:
            del self._open[other]
        if request_id in self._answered:  # the two topics have no common order: the answer may come first
            self._open.clear()
            return
        self._open.setdefault(request_id, now)
        while len(self._open) > _REMEMBERED:  # the oldest is the one that counts, so forget the second
            oldest = next(iter(self._open))
            second = next(r for r in self._open if r != oldest)
            del self._open[second]

    def saw_answer(self, now: float, request_id: str, t0: float) -> None:
        """Note an answer: it closes its request and all that were made before it.

        A second answer to the same request changes nothing: the executor will not take it either.
        """
        self.answers += 1
        if not math.isfinite(t0):
            self.odd_stamps += 1
            return
        if t0 > now + _FUTURE_S:
            self.odd_stamps += 1
        self._answered.setdefault(request_id, min(t0, now))
        while len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)
        if request_id in self._open:
            while self._open:
                if self._open.popitem(last=False)[0] == request_id:
                    break

    def saw_heartbeat(self, now: float, status: str) -> None:
        """Note a heartbeat: ``ready``, ``warming`` or ``error: ...``."""
        self.status = status
        self._heard_at = now
        if status == "ready":
            self._beat_at = now

    @property
    def failed(self) -> bool:
        """Whether the policy itself says that it has failed."""
        return self.status.startswith("error")

    @property
    def warming(self) -> bool:
        """Whether the policy says that it is still warming up."""
        return self.status == "warming"

    def observed_at(self, plan_id: str) -> float | None:
        """Steady seconds of the observation behind plan ``plan_id``; None if its answer was never seen."""
        return self._answered.get(plan_id)

    def request_age_s(self, now: float) -> float | None:
        """Seconds since the oldest unanswered request; None if there is none."""
        return now - next(iter(self._open.values())) if self._open else None

    def heartbeat_age_s(self, now: float) -> float | None:
        """Seconds since the last ``ready``; None if none was ever heard (not every policy has a heartbeat)."""
        return now - self._beat_at if self._beat_at is not None else None

    def silence(self, now: float, stage: str, deadline_s: float) -> Silence | None:
        """Return what broke ``deadline_s``: an unanswered request, the heartbeat, or the policy's own word."""
        if self.failed:
            age = self.request_age_s(now) or 0.0
            return Silence(stage, age, deadline_s, f"the policy reports {self.status!r}")
        age = self.request_age_s(now)
        if age is not None and _passed(age, deadline_s):
            name = next(iter(self._open))
            return Silence(stage, age, deadline_s, f"request {name} unanswered for {age:.3f} s (limit {deadline_s} s)")
        age = self.heartbeat_age_s(now)
        if age is not None and _passed(age, deadline_s):
            heard = f", last word {self.status!r}" if self.status != "ready" else ""
            return Silence(stage, age, deadline_s, f"policy not ready for {age:.3f} s (limit {deadline_s} s{heard})")
        return None


class JointWatch:
    """The age of the joint states. A stamp is trusted, but bounded: another clock must not hide a silence."""

    def __init__(self, joints: int) -> None:
        self._joints = joints
        self._fresh_at: float | None = None  # newest instant about which something is known
        self._stamp: float | None = None
        self.last: JointSample | None = None
        self.odd_stamps = 0
        self.refused = 0
        self.refusal = ""

    def saw(self, now: float, sample: JointSample | None) -> None:
        """Take the newest sample; the same one again is no news.

        A stamp from the future counts as now (and is counted), one from the past as what it says: after a jump of
        the clock a single sample may look old, and the next one mends it.
        """
        if sample is None or sample.t == self._stamp:
            return
        self._stamp = sample.t
        problem = self._problem(sample)
        if problem:
            self.refused += 1
            self.refusal = problem
            return
        if sample.t > now + _FUTURE_S:
            self.odd_stamps += 1
        t = min(sample.t, now)
        if self._fresh_at is None or t >= self._fresh_at:
            self._fresh_at = t
            self.last = sample
        else:
            self.odd_stamps += 1

    def _problem(self, sample: JointSample) -> str:
        if not math.isfinite(sample.t):
            return f"joint state with stamp {sample.t}"
        for name, values in (("position", sample.position), ("velocity", sample.velocity)):
            if np.shape(values) != (self._joints,):
                return f"joint state {name} has shape {np.shape(values)}, not ({self._joints},)"
            if not all_finite(values):
                return f"joint state {name} is not finite"
        return ""

    def age_s(self, now: float) -> float:
        """Seconds since the newest joint state; infinite before the first."""
        return math.inf if self._fresh_at is None else now - self._fresh_at

    def fresh(self, now: float, deadline_s: float) -> bool:
        """Whether the measured state is known."""
        return not _passed(self.age_s(now), deadline_s)


class Silences:
    """All five ages together, against the deadlines of the settings."""

    def __init__(self, settings: WatchdogSettings, joints: int) -> None:
        self.settings = settings
        self.policy = PolicyWatch()
        self.joints = JointWatch(joints)
        self.stream_at: float | None = None  # stamp of the last accepted planned trajectory
        self.plan_id = ""  # the plan that it follows

    def accepted(self, now: float, start: float, plan_id: str) -> None:
        """Note a planned trajectory that passed the gate; its age runs from its stamp, not from its arrival."""
        self.stream_at = min(start, now)
        self.plan_id = plan_id

    def stream_age_s(self, now: float) -> float:
        """Seconds since the stamp of the last accepted planned trajectory; infinite before the first."""
        return math.inf if self.stream_at is None else now - self.stream_at

    def observation_age_s(self, now: float) -> float:
        """Seconds since the observation behind the running plan; infinite if that is not known."""
        t0 = self.policy.observed_at(self.plan_id)
        return math.inf if t0 is None else now - t0

    def stream(self, now: float) -> Silence | None:
        """Silence of valid planned trajectories."""
        return self._aged(
            "stream", self.stream_age_s(now), self.settings.stream_deadline_s, "no valid planned trajectory"
        )

    def answer(self, now: float) -> Silence | None:
        """Silence of the policy that is a deadline miss, and no more."""
        return self.policy.silence(now, "answer", self.settings.answer_deadline_s)

    def policy_gone(self, now: float) -> Silence | None:
        """Silence of the policy that ends its command."""
        return self.policy.silence(now, "policy", self.settings.policy_deadline_s)

    def observation(self, now: float) -> Silence | None:
        """The running plan comes from too old a picture."""
        limit = self.settings.max_observation_age_s
        return self._aged("observation", self.observation_age_s(now), limit, f"plan {self.plan_id} saw nothing newer")

    def joint_states(self, now: float) -> Silence | None:
        """Silence of the joint states."""
        text = self.joints.refusal or "no joint state"
        return self._aged("joints", self.joints.age_s(now), self.settings.joint_state_deadline_s, text)

    @staticmethod
    def _aged(stage: str, age_s: float, deadline_s: float, text: str) -> Silence | None:
        if not _passed(age_s, deadline_s):
            return None
        since = "ever" if math.isinf(age_s) else f"for {age_s:.3f} s"
        return Silence(stage, age_s, deadline_s, f"{text} {since} (limit {deadline_s} s)")

    def gravest(self, now: float) -> Silence | None:
        """Return the silence that ends the policy's command, the one about which least is known first."""
        return self.joint_states(now) or self.policy_gone(now) or self.stream(now) or self.observation(now)
