"""The simulated robot without ROS: commands move the arm, figures count, episodes are judged."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from vla_runtime.control.limits import Limits
from vla_runtime.paths import share
from vla_runtime.sim.follower import FollowerSettings, TrajectoryMessage
from vla_runtime.sim.judge import EpisodeJudge
from vla_runtime.sim.robot import SimRobot
from vla_runtime.sim.run_ring import RunRing
from vla_runtime.sim.stream import StreamFigures

LIMITS = Limits.from_yaml(share("config", "robots", "so101_sim.yaml"))
TICK_S = 0.004
EPOCH_NS = 1_700_000_000 * 10**9


class Clocked:
    """A robot and the two clocks that it is driven by."""

    def __init__(self, **settings):
        self.robot = SimRobot(LIMITS, FollowerSettings(**settings), seed=5)
        self.now_s = 100.0

    @property
    def now_ns(self):
        return EPOCH_NS + round(self.now_s * 1e9)

    def run(self, seconds, tick_s=TICK_S):
        readings = []
        for _ in range(round(seconds / tick_s)):
            readings.append(self.robot.tick(self.now_s, self.now_ns, log=True))
            self.now_s += tick_s
        return readings

    def move(self, goal, seconds):
        start = self.robot.arm.q
        s = np.linspace(0.0, 1.0, 30)[:, None]
        path = start + (goal - start) * (10 * s**3 - 15 * s**4 + 6 * s**5)
        speed = (goal - start) * (30 * s**2 - 60 * s**3 + 30 * s**4) / seconds
        speed[-1] = 0.0
        message = TrajectoryMessage.from_arrays(self.now_ns, self.robot.joint_names, s[:, 0] * seconds, path, speed)
        return self.robot.receive(message, self.now_s, self.now_ns)


def test_stands_still_until_told_and_then_goes_where_it_is_told():
    clocked = Clocked()
    home = clocked.robot.arm.q
    assert np.abs(clocked.run(0.5)[-1].position - home).max() < 5e-3
    goal = home + np.array([0.3, 0.1, -0.1, 0.1, 0.2, -0.2])
    assert clocked.move(goal, 1.0) is None
    reading = clocked.run(1.5)[-1]
    assert np.abs(reading.position - goal).max() < 0.02
    assert np.abs(reading.velocity).max() < 0.02
    figures = clocked.robot.controller()
    assert figures["received"] == figures["accepted"] == 1
    assert figures["step_violations"] == figures["position_violations"] == 0
    assert 0.0 < figures["largest_step_ratio"] < 1.0
    assert figures["resting"]


def test_a_rejected_message_does_not_move_it_and_is_counted_by_reason():
    clocked = Clocked()
    clocked.run(0.1)
    home = clocked.robot.arm.q
    wrong = TrajectoryMessage.from_arrays(0, ["nobody"] * 6, np.array([0.0]), np.ones((1, 6)))
    assert "Incoming joint nobody" in clocked.robot.receive(wrong, clocked.now_s, clocked.now_ns)
    assert np.abs(clocked.run(0.3)[-1].position - home).max() < 5e-3
    figures = clocked.robot.controller()
    assert figures["rejected"] == {"unknown_joint": 1}
    assert figures["rejected_messages"] == 1


def test_a_step_beyond_the_velocity_limit_is_counted():
    clocked = Clocked()
    clocked.run(0.1)
    q = clocked.robot.arm.home + np.array([0.5, 0, 0, 0, 0, 0])
    jump = TrajectoryMessage.from_arrays(clocked.now_ns, clocked.robot.joint_names, np.array([0.0]), q[None])
    assert clocked.robot.receive(jump, clocked.now_s, clocked.now_ns) is None
    clocked.run(0.1)
    figures = clocked.robot.controller()
    assert figures["step_violations"] == 1
    assert figures["largest_step_ratio"] == pytest.approx(0.5 / (4.0 * TICK_S), rel=1e-3)


def test_nan_reaches_the_controller_but_not_the_servos():
    clocked = Clocked()
    clocked.run(0.1)
    home = clocked.robot.arm.q
    nan = TrajectoryMessage.from_arrays(0, clocked.robot.joint_names, np.array([0.0]), np.full((1, 6), np.nan))
    assert clocked.robot.receive(nan, clocked.now_s, clocked.now_ns) is None
    assert np.abs(clocked.run(0.2)[-1].position - home).max() < 5e-3
    figures = clocked.robot.controller()
    assert figures["not_finite_messages"] == 1
    assert figures["not_finite_commands"] > 0


def test_physics_keeps_up_with_the_clock_but_a_stall_is_not_run_through():
    clocked = Clocked()
    clocked.run(0.5, tick_s=0.005)
    assert clocked.robot.arm.time_s == pytest.approx(0.5, abs=0.01)
    clocked.now_s += 3.0
    clocked.run(0.02, tick_s=0.005)
    assert clocked.robot.arm.time_s < 0.7
    assert clocked.robot.status()["time_lost_s"] == pytest.approx(2.9, abs=0.05)


def test_a_new_episode_keeps_or_resets_the_arm():
    clocked = Clocked()
    home = clocked.robot.arm.q
    goal = home + np.array([0.3, 0, 0, 0, 0, 0])
    clocked.move(goal, 0.6)
    clocked.run(1.0)
    clocked.robot.begin_episode(7, "lift the blue cube", keep_arm=True)
    assert np.abs(clocked.run(0.2)[-1].position - goal).max() < 0.02
    status = clocked.robot.status()
    assert (status["episode"], status["seed"], status["colour"]) == (2, 7, "blue")
    assert clocked.robot.controller()["received"] == 1
    clocked.robot.begin_episode(8)
    assert clocked.robot.controller()["received"] == 1, "counted over all episodes"
    assert np.abs(clocked.run(0.2)[-1].position - home).max() < 5e-3
    assert clocked.robot.controller()["step_violations"] == 0
    with pytest.raises(ValueError, match="exactly one"):
        clocked.robot.begin_episode(9, "lift the purple cube")
    assert clocked.robot.status()["seed"] == 8, "a refused episode changes nothing"


def test_judge_wants_the_named_cube_and_no_other():
    judge = EpisodeJudge("red")
    assert not judge.see(1.0, {"red": 0.01, "blue": 0.0})
    assert judge.see(2.0, {"red": 0.06, "blue": 0.0})
    assert (judge.success, judge.lift_time_s) == (True, 2.0)
    assert not judge.see(3.0, {"red": 0.0, "blue": 0.0}), "it has been lifted, whatever comes then"
    assert judge.see(4.0, {"red": 0.0, "blue": 0.07})
    assert (judge.success, judge.wrong_object) == (False, True)


def test_judge_stops_looking_after_the_time_limit():
    judge = EpisodeJudge("red")
    judge.see(1e3, {"red": 0.2})
    assert not judge.decided
    assert judge.highest_m == {"red": 0.2}


def test_rhythm_of_a_stream():
    stream = StreamFigures(LIMITS)
    assert stream.rhythm()["command_rate_hz"] == 0.0
    for k in range(200):
        stream.arrived(k * 0.02 + (0.007 if k == 100 else 0.0))
    rhythm = stream.rhythm()
    assert rhythm["command_rate_hz"] == pytest.approx(50.0)
    assert rhythm["max_gap_ms"] == pytest.approx(27.0)
    assert 0.0 <= rhythm["period_error_p99_ms"] <= 7.0


def test_ring_keeps_the_newest_in_order(tmp_path):
    ring = RunRing(2, rows=4, messages=3)
    for k in range(6):
        ring.moved(float(k), k, np.full(2, k), np.full(2, -k))
        ring.arrived(float(k), k, "time_order" if k == 5 else "")
    ring.save(tmp_path / "run.npz", ("a", "b"))
    with np.load(tmp_path / "run.npz", allow_pickle=False) as saved:
        assert saved["steady_s"].tolist() == [2, 3, 4, 5]
        assert saved["commanded"][:, 1].tolist() == [2, 3, 4, 5]
        assert saved["measured"][:, 0].tolist() == [-2, -3, -4, -5]
        assert saved["arrival_s"].tolist() == [3, 4, 5]
        assert saved["arrival_rejected"].tolist() == ["", "", "time_order"]
        assert saved["joint_names"].tolist() == ["a", "b"]


def test_a_ring_has_its_memory_from_the_start():
    before = resident_mib()
    ring = RunRing(6, rows=1_000_000)
    made = resident_mib()
    zero = np.zeros(6)
    for k in range(150_000):
        ring.moved(0.0, k, zero, zero)
    filled = resident_mib()
    assert made - before > 50.0  # of 108: what is free already is used first
    assert filled - made < 2.0


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 2**20


def test_a_run_is_kept_only_where_it_is_wanted():
    assert SimRobot(LIMITS, FollowerSettings(), seed=5).ring is None
    robot = SimRobot(LIMITS, FollowerSettings(), seed=5, keep_run=True)
    for k in range(3):
        robot.tick(0.01 * k, 10_000_000 * k, log=k != 1)
    assert robot.ring.arrays()["stamp_ns"].tolist() == [0, 20_000_000]
