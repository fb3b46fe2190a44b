"""Makes training data: the expert with disturbances, and the expert correcting a policy (DAgger).

The expert alone visits too few states. Three remedies: episodes that start anywhere, also just after a missed grasp;
commands pushed off course while the label stays what the expert would do from there (DART, Laskey et al. 2017); and
episodes driven by the policy in training, labelled by the expert (DAgger, Ross et al. 2011). Every picture gets
labels for more than one colour, so that the instruction is the only thing that tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from vla_runtime.sim.arm import Arm
from vla_runtime.sim.expert import TICK_S, Expert, Motion
from vla_runtime.sim.kinematics import HOME, UnreachableError, inverse
from vla_runtime.sim.scene import CAMERAS, GRIPPER_CLOSED, PAN_AXIS_X_M
from vla_runtime.sim.task import COLOURS
from vla_runtime.toolchain.train_demo.records import HORIZON, ShardWriter

EPISODES_PER_SHARD = 25
STRIDE = 5  # ticks between two recorded observations
MAX_TICKS = 400
HOLD_TICKS = 30  # recorded after the lift, so that the policy learns to stay there
# A driver: (arm, committed commands (d, 6)) -> chunk (HORIZON, 6), rad
Driver = Callable[[Arm, np.ndarray], np.ndarray]


class Recorder:
    """Runs episodes in one simulator and adds their observations to a shard."""

    def __init__(self, arm: Arm, expert: Expert, rng: np.random.Generator):
        self.arm, self.expert, self.rng = arm, expert, rng

    def start_pose(self, seed: int) -> None:
        """Reset to a scene and a start: home, anywhere, or just after a missed grasp of the named cube."""
        rng, arm = self.rng, self.arm
        scene = arm.reset(seed)
        kind = rng.random()
        q = HOME.copy()
        q[5] = rng.uniform(0.1, 1.0)
        if kind < 0.45:
            q[:5] += rng.normal(0, 0.03, 5)
        else:
            for _ in range(50):
                if kind < 0.75:
                    radius, bearing = rng.uniform(0.15, 0.26), rng.uniform(-0.9, 0.9)
                    z, pitch, gripper = rng.uniform(0.05, 0.16), rng.uniform(1.1, 1.55), rng.uniform(0.0, 1.0)
                else:
                    x, y, _ = scene.cubes[scene.colour]
                    radius = np.hypot(x - PAN_AXIS_X_M, y) + rng.choice([-1, 1]) * rng.uniform(0.02, 0.05)
                    bearing = np.arctan2(y, x - PAN_AXIS_X_M) + rng.uniform(-0.15, 0.15)
                    z, pitch, gripper = rng.uniform(0.018, 0.05), rng.uniform(1.4, 1.57), rng.uniform(0.0, 0.3)
                at = PAN_AXIS_X_M + radius * np.cos(bearing), radius * np.sin(bearing)
                try:
                    pose = inverse(*at, z, bearing + rng.uniform(-0.5, 0.5), pitch)
                except UnreachableError:
                    continue
                clear = min(np.hypot(at[0] - x, at[1] - y) for x, y, _ in scene.cubes.values())
                if (z > 0.075 or clear > 0.045 or (kind >= 0.75 and clear > 0.03)) and (
                    np.abs(pose[:4]) < (1.9, 1.7, 1.65, 1.6)
                ).all():
                    q = np.append(pose, gripper)
                    break
        arm.reset(seed, joints=q)
        arm.step(10)

    def chunk_for(self, colour: str, motion: Motion) -> np.ndarray | None:
        """Return what the expert would command from ``motion`` on, (T, 6), or None if it has no answer."""
        held = self.arm.held()
        try:
            plan = self.expert.plan(
                motion, self.arm.q, self.arm.cube_pose(colour), colour in held, bool(held - {colour})
            )
        except UnreachableError:
            return None
        return plan.q

    def record(self, shard: ShardWriter, before: np.ndarray, motion: Motion, all_colours: bool) -> None:
        """Add an observation. ``before`` (d, 6): commands from now on that are given; the expert goes on after them."""
        arm, own = self.arm, COLOURS.index(self.arm.scene.colour)
        chunks, valid = np.zeros((len(COLOURS), HORIZON, 6), np.float32), np.zeros(len(COLOURS), bool)
        for k, colour in enumerate(COLOURS):
            if k != own and not all_colours:
                continue
            rest = self.chunk_for(colour, motion)
            if rest is not None:
                rows = np.concatenate([before, rest])[:HORIZON]
                chunks[k, : len(rows)], chunks[k, len(rows) :], valid[k] = rows, rows[-1], True
        if not valid[own]:
            return
        poses = np.array([arm.cube_pose(colour) for colour in COLOURS])
        seen = [[arm.project(camera, pose[:3]) for camera in CAMERAS] for pose in poses]
        shard.add(
            images=np.stack([arm.render(camera) for camera in CAMERAS]),
            state=arm.q,
            chunks=chunks,
            valid=valid,
            own=own,
            prefix=len(before) - 1,
            cubes=poses,
            pixels=np.array([[p[:2] for p in row] for row in seen]),
            in_view=np.array([[p[2] for p in row] for row in seen]),
            episode=arm.scene.seed,
        )

    def expert_episode(self, seed: int, shard: ShardWriter, disturb: float = 1.0) -> bool:
        """Record one episode of the expert; ``disturb``: disturbances per second. Returns success."""
        rng, arm = self.rng, self.arm
        self.start_pose(seed)
        motion = Motion(arm.targets)
        plan: Motion | None = None
        at, pushed, hold, offset = 0, 0, 0, int(rng.integers(STRIDE))
        for tick in range(MAX_TICKS):
            if tick % STRIDE == offset:
                self.record(shard, motion.q[None], motion, bool(rng.random() < 0.4))
            if plan is None or (at >= len(plan.q) and (pushed or not arm.outcome().success)):
                try:
                    held, colour = arm.held(), arm.scene.colour
                    plan = self.expert.plan(motion, arm.q, arm.cube_pose(colour), colour in held, bool(held - {colour}))
                except UnreachableError:
                    return False
                at, pushed = 0, 0
            elif not pushed and hold == 0 and rng.random() < disturb * TICK_S:
                plan, at, pushed = self._push(motion), 0, 1
            if at < len(plan.q):
                motion = Motion(plan.q[at], plan.v[at], plan.a[at])
                at += 1
            else:
                hold += 1
                if hold > HOLD_TICKS:
                    break
            arm.drive(motion.q)
        return arm.outcome().success

    def _push(self, motion: Motion) -> Motion:
        """Return a motion off the expert's course: a detour of the joints, or jaws that shut too early."""
        rng = self.rng
        goal, rows = motion.q.copy(), []
        if rng.random() < 0.25:
            goal[5] = GRIPPER_CLOSED
        else:
            goal[:5] += rng.normal(0, 1, 5) * (0.15, 0.10, 0.10, 0.12, 0.25) * rng.choice([0.3, 1.0])
            goal[5] = np.clip(goal[5] + rng.normal(0, 0.15), 0.05, 1.0)
            goal[:5] = np.clip(goal[:5], self.arm.lower[:5] + 0.05, self.arm.upper[:5] - 0.05)
        self.expert.leg(motion, goal, 0.0, rows)
        keep = int(rng.integers(6, 26))
        return Motion(*(np.array(part) for part in zip(*rows[:keep], strict=True)))

    def policy_episode(
        self, seed: int, shard: ShardWriter | None, driver: Driver, delay: int, execute: int, longest: int = MAX_TICKS
    ) -> bool:
        """Let ``driver`` act, ``execute`` ticks of each chunk after ``delay`` committed ones; label what it meets."""
        rng, arm = self.rng, self.arm
        self.start_pose(seed)
        coming = [arm.targets] * (delay + 1)  # commands from now on, now's included
        past = [arm.targets] * 3
        offset, hold = int(rng.integers(STRIDE)), 0
        for tick in range(longest):
            if len(coming) <= delay + 1:
                committed = np.array(coming[:delay]).reshape(-1, 6)
                chunk = driver(arm, committed)
                coming = [*coming[: max(delay, 1)], *chunk[max(delay, 1) : delay + 1 + execute]]
            if shard is not None and tick % STRIDE == offset:
                given = int(rng.integers(1, min(len(coming), 11) + 1))
                before = np.array(coming[:given])
                self.record(shard, before, _ending([*past, *coming[:given]]), bool(rng.random() < 0.25))
            past = [*past[1:], coming[0]]
            coming = coming[1:]
            arm.drive(coming[0])
            if arm.outcome().success:
                hold += 1
                if hold > HOLD_TICKS:
                    return True
        return False


def collect_expert(root: Path, seed: int, episodes: int, log: Callable[[str], None]) -> None:
    """Collect the expert's episodes of scenes 0..episodes-1 into shards; those that are there already are kept."""
    recorder: Recorder | None = None
    for first in range(0, episodes, EPISODES_PER_SHARD):
        name = f"expert-{first:06d}"
        if (root / name).is_dir():
            continue
        if recorder is None:
            recorder = Recorder(Arm(first), Expert(), np.random.default_rng(seed))
        recorder.rng = np.random.default_rng([seed, first])
        shard = ShardWriter(root, name)
        scenes = range(first, min(first + EPISODES_PER_SHARD, episodes))
        lifted = sum(recorder.expert_episode(scene, shard) for scene in scenes)
        shard.close()
        log(f"{name}: {lifted}/{len(scenes)} lifted, {len(shard)} observations")


def _ending(commands: list[np.ndarray]) -> Motion:
    """Estimate the motion at the last of at least four commands (a parabola through four points)."""
    last = np.array(commands[-4:])
    t = np.array([-3.0, -2.0, -1.0, 0.0]) * TICK_S
    curve, slope, _ = np.linalg.lstsq(np.stack([t**2, t, np.ones(4)], 1), last, rcond=None)[0]
    v, a = np.clip(slope, -3.0, 3.0), np.clip(2 * curve, -20.0, 20.0)
    return Motion(last[-1], v, a)
