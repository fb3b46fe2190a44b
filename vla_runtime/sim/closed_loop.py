"""The whole runtime in simulated time: policy, executor, watchdog, controller, arm; no ROS, no thread, no clock.

The parts run as their nodes run them: the executor on the control grid, the watchdog half a period later, the
controller at 250 Hz, cameras at 30 fps; an answer comes when the simulated inference delay has passed. The same seed
and settings give the same episode, bit for bit, wherever the delay does not depend on this machine.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from vla_runtime.control.chunk import ActionChunk
from vla_runtime.control.executor import Executor
from vla_runtime.control.executor_settings import executor_settings
from vla_runtime.control.limits import Limits
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog import Watchdog
from vla_runtime.control.watchdog_settings import watchdog_settings
from vla_runtime.nodes.inference import Request, committed_prefix, noise_seed
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.policy.errors import UnreachableError
from vla_runtime.policy.observation import NotReady
from vla_runtime.policy.policy import Policy
from vla_runtime.sim.arm import PHYSICS_STEP_S, Arm
from vla_runtime.sim.command_checker import CommandChecker
from vla_runtime.sim.episode import EpisodeResult
from vla_runtime.sim.eyes import Eyes
from vla_runtime.sim.follower import Follower, TrajectoryMessage
from vla_runtime.sim.judge import EpisodeJudge
from vla_runtime.sim.loop_settings import PERIOD_S, LoopSettings, fixed_delay, measured_delay
from vla_runtime.sim.senses import Senses
from vla_runtime.sim.stream import StreamFigures

STEP_S = 0.004  # of the controller
STEPS = round(PERIOD_S / STEP_S)
HEARTBEAT_S = 0.05
LOOK_S = 0.1
BEGIN_S = 1000.0
EPOCH_NS = 1_700_000_000 * 10**9
FRAME_WAIT_S = 0.1

__all__ = ["ClosedLoop", "LoopSettings", "fixed_delay", "measured_delay", "run_episode", "run_episodes"]


class ClosedLoop:
    """Runs episodes of one policy, one after the other, in one thread."""

    def __init__(self, policy: Policy, settings: LoopSettings | None = None):
        """Raises ValueError for settings out of range, LimitsError for a robot without the policy's joints."""
        self.settings = settings or LoopSettings()
        self.policy = policy
        self.arm = Arm()
        self.eyes = Eyes()
        robot = load_robot(self.settings.robot)
        self.limits: Limits = robot.limits.select(self.arm.joint_names)
        self._poses = robot.poses
        self._executor_settings = executor_settings(**self.settings.executor)
        self._watchdog_settings = watchdog_settings(**self.settings.watchdog)

    def run(self, seed: int, instruction: str | None = None) -> EpisodeResult:
        """One episode with the scene of a seed; the instruction is drawn from it unless given."""
        scene = self.arm.reset(seed, instruction)
        episode = _Episode(self, scene.instruction, scene.colour, str(seed))
        return episode.run(seed)

    def close(self) -> None:
        """Free the OpenGL contexts."""
        self.arm.close()
        self.eyes.close()

    def __enter__(self) -> "ClosedLoop":
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class _Episode:
    """The parts of one episode and the messages in flight between them."""

    def __init__(self, loop: ClosedLoop, instruction: str, colour: str, epoch: str):
        self.settings, self.policy, self.arm, self.limits = loop.settings, loop.policy, loop.arm, loop.limits
        self.model = loop.policy.bundle.policy
        self.executor = Executor(loop._executor_settings, loop.limits, epoch)
        self.watchdog = Watchdog(loop._watchdog_settings, loop.limits, poses=loop._poses)
        self.follower = Follower(self.arm.joint_names, self.settings.follower)
        self.senses = Senses(self.arm, loop.eyes, self.model, instruction, self.settings.fps)
        self.checker = CommandChecker(loop.limits)  # judges what is published
        self.stream = StreamFigures(loop.limits)  # and what the controller makes of it
        self.judge = EpisodeJudge(colour)
        self.blended = ~loop.limits.discrete
        self.command: Trajectory | None = None  # the last one published
        self.in_command = False
        self.waiting: Request | None = None  # for an observation
        self.answer: tuple[float, ActionChunk] | None = None  # in flight: (arrival, chunk)
        self.plan_ends: dict[str, float] = {}
        self.planned: Trajectory | None = None
        self.counts: Counter[str] = Counter()
        self.time_in_state: Counter[str] = Counter()
        self.inference_ms: list[float] = []
        self.seams: list[float] = []
        self.rows: list[tuple[float, np.ndarray, np.ndarray]] = []

    def run(self, seed: int) -> EpisodeResult:
        self.follower.activate(self.arm.q)
        self.watchdog.activate(BEGIN_S)
        # Before anything moves: what the robot's cameras and joints said until now.
        steps = round(self.settings.time_limit_s / STEP_S)
        for k in range(steps):
            now = BEGIN_S + k * STEP_S
            self._step(k, now)
            if k % round(LOOK_S / STEP_S) == 0:
                self.judge.see(self.arm.time_s, self.arm.cube_heights())
                if self.judge.decided:
                    break
        return self._result(seed, (k + 1) * STEP_S)

    def _step(self, k: int, now: float) -> None:
        self.senses.pass_time(now)
        self._infer(now)
        phase = k % STEPS
        if phase == 0:
            self._executor_tick(now)
        if phase == STEPS // 2 + 1:  # the watchdog's instant lies between the controller's updates
            self._watchdog_tick(now - STEP_S / 2)
        now_ns = _stamp(now)
        measured = self.arm.q
        command = self.follower.update(now_ns, measured, self.arm.qd)
        if self.stream.commanded(command.positions, STEP_S):
            self.arm.set_targets(command.positions)
        if phase == 0:
            self.rows.append((now - BEGIN_S, command.positions, measured))
        self.arm.step(round(STEP_S / PHYSICS_STEP_S))

    def _infer(self, now: float) -> None:
        request = self.waiting
        if request is None or self.answer is not None:
            return
        observation = self.senses.observe(now)
        if isinstance(observation, NotReady):
            if now - request.arrival > FRAME_WAIT_S:
                self.waiting = None
                self.counts["unanswered"] += 1
            return
        self.waiting = None
        rtc = self.model.rtc
        most = rtc.max_delay_steps if rtc.prefix_trained else self.model.horizon - 1
        prefix, count = committed_prefix(request, observation.t, self.model.dt_s, most)
        if not self.settings.send_prefix:
            prefix, count = None, 0
        try:
            output = self.policy.infer(observation, prefix, count, noise_seed(request.request_id))
        except UnreachableError:
            self.counts["unanswered"] += 1
            return
        took_ms = sum(output.stage_ms.values())
        self.inference_ms.append(took_ms)
        arrival = now + self.settings.delay(took_ms * 1e-3)
        names = tuple(self.model.action.joints)
        chunk = ActionChunk(observation.t, self.model.dt_s, names, output.actions, request.request_id, arrival)
        self.answer = (arrival, chunk)

    def _executor_tick(self, now: float) -> None:
        if self.answer is not None and self.answer[0] <= now + 1e-9:
            (arrived, chunk), self.answer = self.answer, None
            self._take_answer(now, arrived, chunk)
        joints = JointSample(now, self.arm.q, self.arm.qd, self.arm.effort)
        tick = self.executor.tick(now, joints, self.command, self.in_command)
        self.planned = tick.planned
        self.counts["ticks"] += 1
        if self.command is not None and tick.planned is None:
            self.counts["starved"] += 1
        if tick.request is not None:
            request = tick.request
            self.counts["requests"] += 1
            self.watchdog.saw_request(now, request.request_id)
            sent = int((request.times < -1e-9).sum()) + request.committed
            self.waiting = Request(
                request.request_id, request.stamp, request.times[:sent], request.positions[:sent], now
            )
            self._infer(now)

    def _take_answer(self, now: float, arrived: float, chunk: ActionChunk) -> None:
        self.watchdog.saw_answer(arrived, chunk.request_id, chunk.t0)
        running = self.command.sample(now)[0] if self.command is not None else None
        if self.executor.offer(now, chunk) is not None:
            self.counts["refused"] += 1
            return
        self.counts["answers"] += 1
        self.plan_ends[chunk.request_id] = chunk.end
        if running is not None and self.in_command:
            order = [chunk.joint_names.index(name) for name in self.arm.joint_names]
            times = chunk.t0 + chunk.dt * np.arange(chunk.horizon)
            says = np.array([np.interp(now, times, chunk.positions[:, j]) for j in order])
            self.seams.append(float(np.abs(says - running)[self.blended].max()))

    def _watchdog_tick(self, now: float) -> None:
        if (now - BEGIN_S) % HEARTBEAT_S < PERIOD_S:
            self.watchdog.saw_heartbeat(now, "ready")
        joints = JointSample(now, self.arm.q, self.arm.qd, self.arm.effort)
        decision = self.watchdog.tick(now, joints, self.planned)
        self.planned = None
        was, self.in_command = self.in_command, decision.in_command == "policy"
        if was and not self.in_command:
            self.executor.flush(f"command left the policy: {decision.state}")
        self.time_in_state[str(decision.state)] += PERIOD_S
        if decision.transition is not None and str(decision.transition.target) == "COASTING":
            self.counts["misses"] += 1
        self.checker.check(now, decision.trajectory, due=self.command is not None)
        if decision.trajectory is None:
            return
        self.command = trajectory = decision.trajectory
        plan_end = self.plan_ends.get(trajectory.plan_id, np.inf) if self.in_command else np.inf
        # A waypoint whose time has passed, or of a plan that has been used up.
        self.counts["elapsed"] += now - trajectory.start > PERIOD_S or trajectory.start > plan_end + 1e-6
        message = TrajectoryMessage.from_arrays(
            _stamp(trajectory.start), trajectory.joint_names, trajectory.times, trajectory.positions,
            trajectory.velocities,
        )  # fmt: skip
        self.follower.accept(message, _stamp(now))

    def _result(self, seed: int, duration_s: float) -> EpisodeResult:
        times, commanded, measured = (np.array(column) for column in zip(*self.rows))
        moving = commanded[:, self.blended]
        jerk = np.diff(moving, 3, axis=0) / PERIOD_S**3
        log = {"time_s": times, "commanded": commanded, "measured": measured} if self.settings.keep_log else {}
        return EpisodeResult(
            seed=seed,
            instruction=self.arm.scene.instruction,
            success=self.judge.success,
            wrong_object=self.judge.wrong_object,
            lift_time_s=self.judge.lift_time_s,
            duration_s=duration_s,
            requests=self.counts["requests"],
            answers=self.counts["answers"],
            inference_ms=tuple(self.inference_ms),
            seam_jumps=tuple(self.seams),
            jerk=float(np.sqrt(np.mean(jerk**2))) if len(jerk) else 0.0,
            path_length=float(np.abs(np.diff(moving, axis=0)).sum()),
            starved_ticks=self.counts["starved"],
            ticks=self.counts["ticks"],
            time_in_state_s=dict(self.time_in_state),
            deadline_misses=self.counts["misses"],
            refused_plans=self.counts["refused"],
            rejected_messages=sum(self.follower.figures.rejected.values()),
            elapsed_executed=self.counts["elapsed"],
            violations=self._violations(),
            log=log,
        )

    def _violations(self) -> dict[str, int]:
        found = Counter(violation.rule for violation in self.checker.violations)
        stream = self.stream
        found.update(
            controller_step=stream.step_violations,
            controller_position=stream.position_violations,
            controller_not_finite=stream.not_finite,
        )
        return {rule: count for rule, count in found.items() if count}


def run_episode(
    policy: Policy, seed: int, instruction: str | None = None, settings: LoopSettings | None = None
) -> EpisodeResult:
    """One episode; see `LoopSettings`. For many, `run_episodes` shares the simulation between them."""
    with ClosedLoop(policy, settings) as loop:
        return loop.run(seed, instruction)


def run_episodes(
    policy: Policy,
    seeds: Sequence[int],
    settings: LoopSettings | None = None,
    progress: Callable[[EpisodeResult], None] = lambda _result: None,
) -> list[EpisodeResult]:
    """One episode per seed. `progress` is called after each."""
    results = []
    with ClosedLoop(policy, settings) as loop:
        for seed in seeds:
            results.append(loop.run(seed))
            progress(results[-1])
    return results


def _stamp(t: float) -> int:
    return EPOCH_NS + round(t * 1e9)
