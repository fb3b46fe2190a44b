"""Puts observations together from cameras, joint states and an instruction that arrive at their own pace.

Pure: times are steady seconds given as arguments; nothing here reads a clock or knows ROS.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.policy.errors import ObservationError
from vla_runtime.policy.policy import Observation

Frame = np.ndarray | Callable[[], np.ndarray]


@dataclass(frozen=True)
class NotReady:
    """Why there is no observation now. ``kind``: missing | stale | waiting | future | bad; ``detail`` names the input.

    'waiting' is the ordinary case of a camera slower than the caller: the newest frame has been used already.
    """

    kind: str
    detail: str


class ObservationAssembler:
    """Holds the latest sample of each input, and hands out each frame once.

    ``max_age_s``: the oldest that an input may be when an observation is taken. ``max_ahead_s``: how far a stamp may
    lie in the future (clocks of two hosts differ a little) before the sample is refused.
    Frames may be given as arrays or as functions that decode them, called only for frames that are used.
    """

    def __init__(self, policy: PolicyModel, *, max_age_s: float, max_ahead_s: float = 0.1):
        if not max_age_s > 0:
            raise ObservationError(f"max_age_s is {max_age_s}; it must be above 0")
        self.counters: Counter[str] = Counter()
        self._cameras = tuple(camera.name for camera in policy.cameras)
        self._joints = tuple(policy.state.joints)
        self._max_age = max_age_s
        self._max_ahead = max_ahead_s
        self._frames: dict[str, tuple[float, Frame]] = {}
        self._used: dict[str, float] = {}
        self._state: tuple[float, np.ndarray] | None = None
        self._state_used = -np.inf
        self._instruction = policy.instruction.default if policy.instruction is not None else ""

    @property
    def instruction(self) -> str:
        """The instruction that the next observation will carry."""
        return self._instruction

    def offer_image(self, camera: str, t: float, frame: Frame) -> bool:
        """Keep a frame taken at ``t``; False when it is not newer than the one held (counted, not kept).

        Raises ObservationError for a camera that the policy does not have.
        """
        if camera not in self._cameras:
            raise ObservationError(f"camera '{camera}' is not one of this policy's {list(self._cameras)}")
        held = self._frames.get(camera)
        if held is not None and t <= held[0]:
            self.counters[f"not_newer.{camera}"] += 1
            return False
        self._frames[camera] = (t, frame)
        return True

    def offer_state(self, t: float, names: Sequence[str], positions: Sequence[float]) -> bool:
        """Keep joint positions taken at ``t``, mapped by name (any order, more joints than needed are fine).

        False when it is not newer than the one held. Raises ObservationError naming a joint that is missing, a value
        that is not finite, or names and positions of different lengths; the sample held before stays.
        """
        if len(names) != len(positions):
            raise ObservationError(f"joint state has {len(names)} names but {len(positions)} positions")
        by_name = dict(zip(names, positions))
        missing = [joint for joint in self._joints if joint not in by_name]
        if missing:
            raise ObservationError(f"joint state lacks {missing}; it has {list(names)}")
        values = np.array([by_name[joint] for joint in self._joints], np.float64)
        if not np.isfinite(values).all():
            bad = [joint for joint, value in zip(self._joints, values) if not np.isfinite(value)]
            raise ObservationError(f"joint state: position of {bad} is not finite")
        if self._state is not None and t <= self._state[0]:
            self.counters["not_newer.state"] += 1
            return False
        self._state = (t, values)
        return True

    def offer_instruction(self, text: str) -> None:
        """Use ``text`` from the next observation on."""
        self._instruction = text

    def clear(self) -> None:
        """Forget all samples (after a jump of the clock, or on deactivation); the instruction stays."""
        self._frames.clear()
        self._used.clear()
        self._state = None
        self._state_used = -np.inf

    def ages(self, now: float) -> dict[str, float]:
        """Age in seconds of what is held, by input; inputs never seen are left out."""
        ages = {camera: now - held[0] for camera, held in self._frames.items()}
        if self._state is not None:
            ages["state"] = now - self._state[0]
        return ages

    def take(self, now: float) -> Observation | NotReady:
        """Return an observation made of samples that are all present, young enough, and not used before.

        Its time is that of its oldest input. A frame that cannot be decoded gives NotReady('bad') and is dropped.
        """
        refusal = self._refusal(now)
        if refusal is not None:
            self.counters[refusal.kind] += 1
            return refusal
        images = {}
        for camera in self._cameras:
            t, frame = self._frames[camera]
            self._used[camera] = t
            try:
                images[camera] = frame() if callable(frame) else frame
            except Exception as error:  # whatever a decoder raises, one broken frame must not end the policy
                self.counters["bad"] += 1
                return NotReady("bad", f"camera '{camera}': {error}")
        self._state_used = self._state[0]
        oldest = min([self._state[0], *(self._used[camera] for camera in self._cameras)])
        self.counters["taken"] += 1
        return Observation(oldest, images, self._state[1].copy(), self._instruction)

    def _refusal(self, now: float) -> NotReady | None:
        samples = {f"camera '{camera}'": self._frames.get(camera) for camera in self._cameras}
        samples["the joint state"] = self._state
        missing = [label for label, sample in samples.items() if sample is None]
        if missing:
            return NotReady("missing", f"nothing has arrived yet from {', '.join(missing)}")
        for label, (t, _) in samples.items():
            if now - t > self._max_age:
                return NotReady("stale", f"{label} is {now - t:.3f} s old, the limit is {self._max_age:.3f} s")
            if t - now > self._max_ahead:
                self._drop_future(now)  # else it would shadow every true sample until its time comes
                return NotReady("future", f"{label} is stamped {t - now:.3f} s in the future; check the hosts' clocks")
        waiting = [camera for camera in self._cameras if self._frames[camera][0] <= self._used.get(camera, -np.inf)]
        if waiting:
            return NotReady("waiting", f"no new frame yet from {waiting}")
        if not self._cameras and self._state[0] <= self._state_used:
            return NotReady("waiting", "no new joint state yet")
        return None

    def _drop_future(self, now: float) -> None:
        latest = now + self._max_ahead
        self._frames = {camera: held for camera, held in self._frames.items() if held[0] <= latest}
        if self._state is not None and self._state[0] > latest:
            self._state = None
