"""The simulated robot without ROS: arm, controller, score and figures behind one lock, on the caller's clocks."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.sim.arm import PHYSICS_STEP_S, Arm
from vla_runtime.sim.follower import Follower, FollowerSettings, TrajectoryMessage
from vla_runtime.sim.judge import EpisodeJudge
from vla_runtime.sim.run_ring import RunRing
from vla_runtime.sim.stream import StreamFigures, controller_report
from vla_runtime.sim.task import colour_of

MAX_CATCH_UP_S = 0.1
"""A machine that stood still longer than this loses the time: the arm does not run through it in one burst."""


@dataclass(frozen=True)
class JointReading:
    """The measured joints at one instant: (n,) rad, rad/s, N m."""

    stamp_ns: int
    position: np.ndarray
    velocity: np.ndarray
    effort: np.ndarray


class SimRobot:
    """An arm and its controller. `receive` and `tick` belong to one control thread; the rest may come from others."""

    def __init__(
        self,
        limits: Limits,
        settings: FollowerSettings,
        seed: int = 0,
        instruction: str | None = None,
        *,
        keep_run: bool = False,
    ):
        """limits: must name the arm's joints (any order). keep_run: whether to keep the last minutes in ``ring``.

        Raises LimitsError for a joint that is missing.
        """
        self.arm = Arm(seed, instruction)
        self.joint_names = self.arm.joint_names
        self.limits = limits.select(self.joint_names)
        self.follower = Follower(self.joint_names, settings)
        self.stream = StreamFigures(self.limits)
        self.ring = RunRing(len(self.joint_names)) if keep_run else None
        self.episode = 0
        self.time_lost_s = 0.0
        self._lock = threading.Lock()
        self._stamp_ns = 0
        self._last_s: float | None = None
        self._behind_s = 0.0
        self._begin(seed, instruction, keep_arm=False)

    def receive(self, message: TrajectoryMessage, arrived_s: float, now_ns: int) -> str | None:
        """Give a message to the controller. Returns the text of its refusal, or None."""
        with self._lock:
            self.stream.arrived(arrived_s)
            rejection = self.follower.accept(message, now_ns)
            if self.ring is not None:
                self.ring.arrived(arrived_s, message.stamp_ns, rejection.reason if rejection else "")
            return rejection.text if rejection else None

    def tick(self, now_s: float, now_ns: int, log: bool = False) -> JointReading:
        """One control update at now_s (steady) = now_ns (ROS), and the physics up to the next one.

        Returns what was measured at now. log: whether to keep this instant in the ring, if there is one.
        """
        with self._lock:
            period_s = 0.0 if self._last_s is None else now_s - self._last_s
            self._last_s = now_s
            reading = JointReading(now_ns, self.arm.q, self.arm.qd, self.arm.effort)
            command = self.follower.update(now_ns, reading.position, reading.velocity, round(period_s * 1e9))
            # A NaN passes the controller; a servo's driver would refuse it or worse. Here the target stays.
            if self.stream.commanded(command.positions, period_s):
                self.arm.set_targets(command.positions)
            if log and self.ring is not None:
                self.ring.moved(now_s, now_ns, command.positions, reading.position)
            self._behind_s += period_s
            if self._behind_s > MAX_CATCH_UP_S:
                self.time_lost_s += self._behind_s - MAX_CATCH_UP_S
                self._behind_s = MAX_CATCH_UP_S
            steps = int(self._behind_s / PHYSICS_STEP_S + 1e-6)
            self.arm.step(steps)
            self._behind_s -= steps * PHYSICS_STEP_S
            self._stamp_ns = now_ns
            return reading

    def begin_episode(self, seed: int, instruction: str | None = None, keep_arm: bool = False) -> None:
        """Lay the cubes of a seed. keep_arm: the arm stays where it is and the controller goes on; else both restart.

        Raises ValueError for an instruction that does not name exactly one of the colours.
        """
        with self._lock:
            self._begin(seed, instruction, keep_arm)

    def see(self) -> bool:
        """Look at the cubes; returns whether the verdict changed. To be called some ten times a second."""
        with self._lock:
            return self.judge.see(self.arm.time_s, self.arm.cube_heights())

    def pose(self, into: np.ndarray) -> int:
        """Copy the positions of everything into `into` (nq,), for a camera; returns the instant's ROS nanoseconds."""
        with self._lock:
            into[:] = self.arm.data.qpos
            return self._stamp_ns

    def status(self) -> dict[str, Any]:
        """How the episode stands."""
        with self._lock:
            scene, judge = self.arm.scene, self.judge
            return {
                "episode": self.episode,
                "seed": scene.seed,
                "instruction": scene.instruction,
                "colour": judge.colour,
                "time_s": round(self.arm.time_s, 3),
                "success": judge.success,
                "wrong_object": judge.wrong_object,
                "lift_time_s": judge.lift_time_s,
                "heights_m": {colour: round(height, 4) for colour, height in self.arm.cube_heights().items()},
                "highest_m": {colour: round(height, 4) for colour, height in judge.highest_m.items()},
                "time_lost_s": round(self.time_lost_s, 3),
            }

    def controller(self) -> dict[str, Any]:
        """What the controller has counted since the node's start."""
        with self._lock:
            return controller_report(self.follower, self.stream)

    def _begin(self, seed: int, instruction: str | None, keep_arm: bool) -> None:
        if instruction is not None:
            colour_of(instruction)  # refused before anything has changed
        scene = self.arm.reset(seed, instruction, joints=self.arm.q if keep_arm else None)
        self.judge = EpisodeJudge(scene.colour)
        self.episode += 1
        if not keep_arm:
            self.follower.activate(self.arm.q)
            self.stream.jumped()
