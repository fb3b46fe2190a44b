"""The whole runtime in simulated time, driven by a policy that knows the answer: the scripted expert."""

import numpy as np
import pytest

from vla_runtime.policy.bundle import load_bundle
from vla_runtime.policy.policy import PolicyOutput
from vla_runtime.sim.closed_loop import ClosedLoop, LoopSettings, fixed_delay, measured_delay, run_episodes
from vla_runtime.sim.episode import summarise
from vla_runtime.sim.expert import Expert, Motion
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

SEEDS = (1_000_000, 1_000_001, 1_000_002)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(write_tiny_bundle(tmp_path_factory.mktemp("tiny")))


class ExpertPolicy:
    """Answers as a perfect policy would: the expert's next second from what is committed, seen at the arm itself."""

    def __init__(self, bundle, offset_rad=0.0, spoil=lambda n, actions: actions):
        self.bundle, self.offset_rad, self.spoil = bundle, offset_rad, spoil
        self.expert = Expert()
        self.loop = None
        self.asked = 0

    def infer(self, observation, prefix=None, delay_steps=0, seed=None):
        arm, model = self.loop.arm, self.bundle.policy
        committed = np.zeros((0, 6)) if prefix is None else prefix.positions[:delay_steps]
        q = committed[-1] if len(committed) else observation.state
        v = (committed[-1] - committed[-2]) / model.dt_s if len(committed) > 1 else np.zeros(6)
        colour = arm.scene.colour
        held = arm.held()
        motion = self.expert.plan(Motion(q, v), observation.state, arm.cube_pose(colour), colour in held, bool(held))
        rows = np.concatenate([committed, motion.q])[: model.horizon]
        rows = np.concatenate([rows, np.repeat(rows[-1:], model.horizon - len(rows), axis=0)])
        self.asked += 1
        offset = self.offset_rad * (-1) ** self.asked * np.array([1, 1, 1, 1, 1, 0])
        return PolicyOutput(self.spoil(self.asked, rows + offset), {"action": 1.0})


def run(bundle, seeds=SEEDS[:1], policy=None, **settings):
    policy = policy or ExpertPolicy(bundle)
    with ClosedLoop(policy, LoopSettings(**settings)) as loop:
        policy.loop = loop
        return [loop.run(seed) for seed in seeds]


@pytest.mark.parametrize("ticks", [0, 4])
def test_a_perfect_policy_succeeds_and_nothing_is_violated(bundle, ticks):
    results = run(bundle, SEEDS, delay=fixed_delay(ticks))
    assert [result.how for result in results] == ["success"] * 3
    for result in results:
        assert result.violations == {}
        assert result.elapsed_executed == result.rejected_messages == result.refused_plans == 0
        assert result.starved_ticks == result.deadline_misses == 0
        assert set(result.time_in_state_s) == {"WARMUP", "NOMINAL"}
        assert 5 < result.answers <= result.requests
    figures = summarise(results)
    assert figures["success_interval"][0] < 0.5 < figures["success_interval"][1] == 1.0
    assert figures["action_rate_hz"] == pytest.approx(5.0, abs=0.5)


def test_the_same_seed_gives_the_same_episode_bit_for_bit(bundle):
    one, two = (run(bundle, delay=fixed_delay(3), keep_log=True, time_limit_s=2.0)[0] for _ in range(2))
    assert one == two
    for name, values in one.log.items():
        np.testing.assert_array_equal(values, two.log[name])
    assert len(one.log["commanded"]) == 100


def test_episodes_of_one_loop_do_not_depend_on_the_one_before(bundle):
    alone = run(bundle, SEEDS[1:2], time_limit_s=1.5)
    after = run(bundle, SEEDS[:2], time_limit_s=1.5)
    assert after[1] == alone[0]


def test_the_instruction_decides_which_cube(bundle):
    policy = ExpertPolicy(bundle)
    with ClosedLoop(policy, LoopSettings()) as loop:
        policy.loop = loop
        for colour in ("red", "green", "blue"):
            result = loop.run(SEEDS[0], f"lift the {colour} cube")
            assert result.success
            assert colour in result.instruction


def test_an_offset_of_each_plan_shows_as_seam_jumps_not_as_violations(bundle):
    calm = run(bundle, executor={"blend": "cut"}, send_prefix=False, time_limit_s=2.0)[0]
    rough = run(
        bundle, policy=ExpertPolicy(bundle, 0.06), executor={"blend": "cut"}, send_prefix=False, time_limit_s=2.0
    )[0]
    assert np.median(rough.seam_jumps) > np.median(calm.seam_jumps) + 0.03
    assert rough.jerk > calm.jerk
    assert rough.violations == {}


def test_an_inference_slower_than_its_plan_starves_the_arm_safely(bundle):
    result = run(bundle, delay=fixed_delay(70), time_limit_s=6.0)[0]
    assert not result.success
    assert result.refused_plans > 0
    assert result.elapsed_executed == 0
    assert result.violations == {}


def test_a_policy_that_stops_answering_is_noticed(bundle):
    def delay(_measured_s, calls=[]):  # noqa: B006
        calls.append(1)
        return 0.06 if len(calls) < 8 else 60.0

    result = run(bundle, delay=delay, time_limit_s=4.0)[0]
    assert result.deadline_misses == 1
    assert result.time_in_state_s["FALLBACK"] > 1.0
    assert result.starved_ticks > 0
    assert result.violations == {}
    assert result.elapsed_executed == 0


def test_a_plan_with_nan_is_refused_whole(bundle):
    def spoil(n, actions):
        if n == 5:
            actions[20, 2] = np.nan
        return actions

    result = run(bundle, policy=ExpertPolicy(bundle, spoil=spoil), time_limit_s=3.0)[0]
    assert result.refused_plans == 1
    assert result.violations == {}


def test_a_real_flow_policy_runs_through(bundle):
    from vla_runtime.policy.policy import load_policy

    policy = load_policy(bundle, allow_unproven=True)
    seen = []
    results = run_episodes(policy, SEEDS[:2], LoopSettings(delay=fixed_delay(2), time_limit_s=1.0), seen.append)
    assert seen == results
    assert [result.seed for result in results] == list(SEEDS[:2])
    assert all(result.answers >= 4 and len(result.inference_ms) >= 4 for result in results)
    assert results[0].violations == {}


def test_delays():
    assert fixed_delay(2.5)(99.0) == pytest.approx(0.05)
    assert measured_delay(added_ticks=1, scale=2.0)(0.1) == pytest.approx(0.22)
    with pytest.raises(ValueError, match="0 or above"):
        fixed_delay(-1)
    with pytest.raises(ValueError, match="0 or above"):
        fixed_delay(float("nan"))
