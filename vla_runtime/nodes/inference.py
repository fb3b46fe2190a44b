"""The one thread that runs the policy: latest request wins, no frame is used twice, no error is silent."""

import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vla_runtime.policy.errors import UnreachableError
from vla_runtime.policy.observation import NotReady
from vla_runtime.policy.policy import Observation, Policy, PolicyOutput, Prefix

_POLL_S = 0.003


@dataclass(frozen=True, eq=False)
class Request:
    """A plan_request, mapped to the bundle's joints.

    ``at``: steady seconds of its stamp; ``times`` (d,) s from then on, increasing; negative: already executed;
    ``positions`` (d, n) rad at these times: what was and will be executed (d may be 0); ``arrival``: steady seconds.
    """

    request_id: str
    at: float
    times: np.ndarray
    positions: np.ndarray
    arrival: float


@dataclass(frozen=True)
class Answer:
    """One chunk for one request, and all that it was computed from.

    ``stage_ms``: the policy's stages, and ``wait``, ``observation_age``, ``total``; ``prefix``: what was committed, the
    first ``prefix_count`` rows of it.
    """

    request: Request
    t0: float
    actions: np.ndarray
    stage_ms: dict[str, float]
    observation: Observation
    prefix: Prefix | None
    prefix_count: int


def committed_prefix(request: Request, t0: float, dt: float, most: int) -> tuple[Prefix | None, int]:
    """What was and will be executed from the observation on: rows at t0, t0 + dt, ...; at most ``most`` of them.

    Before the first time that the request knows, the line through its first two points goes on backwards: at 5 rad/s^2
    and 30 ms that is 2 mrad from what was commanded.
    """
    times, known = request.times, request.positions
    if not len(times):
        return None, 0
    since = request.at - t0  # of the observation, until the request
    count = min(int(np.floor((since + times[-1]) / dt + 1e-6)) + 1, most)
    if count <= 0:
        return None, 0
    if len(times) == 1:
        return Prefix(np.repeat(known, count, axis=0)), count
    wanted = dt * np.arange(count) - since
    left = np.clip(np.searchsorted(times, wanted, side="right") - 1, 0, len(times) - 2)
    share = (wanted - times[left]) / (times[left + 1] - times[left])
    return Prefix(known[left] + np.minimum(share, 1.0)[:, None] * (known[left + 1] - known[left])), count


def noise_seed(request_id: str) -> int:
    """The seed of a request's noise: a function of its id, so that a recorded run can be computed again."""
    return zlib.crc32(request_id.encode())


class InferenceWorker:
    """Answers requests one at a time. ``ask`` may be called from any thread.

    ``observe(now)`` looks for an observation; a ``NotReady`` is asked again until ``frame_wait_s`` has passed, and
    then the request stays unanswered, which the watchdog notices. ``answered`` and ``failed`` are called in the
    worker's thread. After an exception of the policy the worker proves it with a warm-up before the next request;
    after ``max_failures`` in a row it gives up (``broken``).
    """

    def __init__(
        self,
        policy: Policy,
        observe: Callable[[float], Observation | NotReady],
        answered: Callable[[Answer], None],
        failed: Callable[[str], None],
        *,
        frame_wait_s: float,
        max_failures: int = 3,
        error_hold_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.policy = policy
        self.frame_wait_s = frame_wait_s
        self.counters: Counter[str] = Counter()
        self.error = ""
        self.broken = False
        self.not_ready: NotReady | None = None
        self.busy_since: float | None = None
        self._observe, self._answered, self._failed = observe, answered, failed
        self._max_failures, self._error_hold_s = max_failures, error_hold_s
        self._clock = clock
        self._failures = 0
        self._request: Request | None = None
        self._stopping = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="inference", daemon=True)

    def start(self) -> None:
        """Begin to take requests."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread after the running inference; False when that does not end within ``timeout_s``."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ask(self, request: Request) -> None:
        """Take a request in place of one that is still waiting."""
        with self._news:
            if self._request is not None:
                self.counters["superseded"] += 1
            self._request = request
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._request is not None or self._stopping)
                if self._stopping:
                    return
                request, self._request = self._request, None
            self.busy_since = self._clock()
            self.counters["requests"] += 1
            try:
                self._serve(request)
            except UnreachableError as error:  # the policy is sound, its plan is not: the request stays unanswered
                self.counters["unreachable_plans"] += 1
                self._failed(str(error))
            except Exception as error:  # whatever an engine raises, it must end in the open
                self._fail(error)
            self.busy_since = None
            if self.broken:
                return

    def _serve(self, request: Request) -> None:
        begin = self._clock()
        observation = self._await_observation(begin)
        if observation is None:
            return
        seen = self._clock()
        model = self.policy.bundle.policy
        most = model.horizon - 1 if not model.rtc.prefix_trained else model.rtc.max_delay_steps
        prefix, count = committed_prefix(request, observation.t, model.dt_s, most)
        output = self.policy.infer(observation, prefix, count, noise_seed(request.request_id))
        self._failures, self.error = 0, ""
        self.counters["answers"] += 1
        stage_ms = self._stage_ms(request, observation, output, begin, seen)
        self._answered(Answer(request, observation.t, output.actions, stage_ms, observation, prefix, count))

    def _stage_ms(
        self, request: Request, observation: Observation, output: PolicyOutput, begin: float, seen: float
    ) -> dict[str, float]:
        return {
            "wait": 1e3 * (seen - begin),
            "observation_age": 1e3 * (seen - observation.t),
            **output.stage_ms,
            "total": 1e3 * (self._clock() - request.arrival),
        }

    def _await_observation(self, begin: float) -> Observation | None:
        """An observation, or None after ``frame_wait_s``; ``not_ready`` then says why, a broken input before a late."""
        reason: NotReady | None = None
        while True:
            now = self._clock()
            found = self._observe(now)
            if isinstance(found, Observation):
                self.not_ready = None
                if reason is not None:
                    self.counters["waited_for_frame"] += 1
                return found
            if reason is None or reason.kind != "bad":
                reason = found
            if now - begin >= self.frame_wait_s or self._stopping or self._request is not None:
                self.not_ready = reason
                self.counters[f"no_observation.{reason.kind}"] += 1
                return None
            time.sleep(_POLL_S)

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self.counters["failures"] += 1
        self.error = f"{type(error).__name__}: {error}"
        self._failed(traceback.format_exc())
        if self._failures >= self._max_failures:
            self.broken = True
            return
        time.sleep(self._error_hold_s)  # long enough for the word to be heard
        try:
            self.policy.warm_up()
        except Exception:
            self._failed(traceback.format_exc())
            self.broken = True
        else:
            self.error = ""
