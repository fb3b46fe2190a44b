"""The operator's screen: what is on the board, and how it looks at 80 columns."""

import io

import pytest
from rich.console import Console

from vla_runtime.control.watchdog_states import State
from vla_runtime.toolchain.monitor.board import Board, Status
from vla_runtime.toolchain.monitor.render import COLOURS, duration, screen


def drawn(board: Board, now: float, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(screen(board.view(now, ros_now=1000.0), "vla monitor", width))
    return console.file.getvalue()


@pytest.fixture
def board() -> Board:
    """A healthy run at t = 10 s."""
    made = Board()
    made.hear_state(
        "watchdog",
        Status(
            9.9,
            0,
            "NOMINAL",
            {"cause": "the answer came", "in_command": "policy", "since": "988.0", "missed.answer": "2"},
        ),
    )
    made.hear_state("executor", Status(9.8, 0, "planning", {"plan": "ab12:41", "k": "12", "k_range": "7 to 40"}))
    made.hear_state("policy", Status(9.9, 0, "ready", {"instruction": "pick up the red cube"}))
    for node in ("watchdog", "executor"):
        values = {
            "rate_hz": "50",
            "period_error_p99_ms": "0.08",
            "max_gap_ms": "20.4",
            "realtime": "refused: no rtprio limit",
        }
        made.hear_diagnostics(f"{node}: loop", Status(9.5, 0, "50.0 Hz", values))
    made.hear_diagnostics(
        "watchdog: inputs", Status(9.5, 0, "all in time", {"joint_state_age_s": "0.008", "request_age_s": "inf"})
    )
    made.hear_diagnostics(
        "policy: inputs", Status(9.5, 0, "in time", {"age_s.front": "0.03", "max_input_age_s": "0.2"})
    )
    made.hear_diagnostics("policy: model", Status(9.5, 0, "demo-so101", {"engines.vision": "onnxruntime"}))
    made.hear_diagnostics(
        "executor: plan",
        Status(9.5, 0, "following", {"accepted": "80", "refused_total": "3", "refused.jump": "3", "blend": "rtc",
                                     "delay_ms.p99": "92.5", "seam_jump.p99": "0.012"}),
    )  # fmt: skip
    made.hear_limit("joint_state_age_s", 0.1)
    for i in range(40):
        made.hear_latency({"vision": 20.0 + i % 5, "action": 40.0, "total": 65.0})
    for i in range(300):
        made.hear_command(10.0 - 0.02 * (299 - i))
    return made


def test_it_says_who_is_in_command_and_why(board):
    view = board.view(10.0, ros_now=1000.0)
    assert (view.state, view.in_command, view.cause) == ("NOMINAL", "policy", "the answer came")
    assert view.since_s == pytest.approx(12.0)
    text = drawn(board, 10.0)
    assert "POLICY is in command   NOMINAL for 12.0 s" in text
    assert "the answer came" in text


def test_it_measures_the_command_stream_itself(board):
    stream = board.view(10.0).stream
    assert stream.rate_hz == pytest.approx(50.0, abs=0.01)
    assert stream.jitter_p99_ms == pytest.approx(0.0, abs=1e-6)
    board.hear_command(10.08)
    assert board.view(10.08).stream.max_gap_ms == pytest.approx(80.0, abs=0.1)


def test_the_stream_that_has_stopped_is_not_counted_as_running(board):
    assert board.view(25.0).stream.rate_hz == 0.0
    assert board.view(25.0).stream.silent_s == pytest.approx(15.0)


def test_everything_of_the_brief_is_on_the_screen(board):
    text = drawn(board, 10.0)
    for what in ("50.0", "12, safe: 7 to 40", "92 ms", "rtc", "0.012 rad", "80, refused 3", "ab12:41", "demo-so101",
                 "onnxruntime", "vision", "front", "30 ms", "/ 200", "8 ms", "/ 100", "none open", "answer 2",
                 "plan jump 3", "pick up the red cube"):  # fmt: skip
        assert what in text, what


def test_eighty_columns_are_enough(board):
    board.publishers = ("/watchdog", "/some/very/long/namespace/of/another/driver/teleop_publisher")
    board.hear_diagnostics(
        "policy: inputs", Status(9.9, 2, "camera 'front' is 1.301 s old, the limit is 0.200 s " * 3, {})
    )
    text = drawn(board, 10.0)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "2 publishers command the arm" in text


def test_seconds_of_latency_fit_too(board):
    for _ in range(200):
        board.hear_latency({"observation_age": 1234.56, "action": 9876.5, "total": 99.96})
    text = drawn(board, 10.0)
    assert "observation_age  1235  1235  1235  1235" in text
    assert "…" not in text


def test_an_old_state_is_not_shown_as_present(board):
    view = board.view(14.0)
    assert view.state == "NOMINAL?"
    assert view.in_command == "nobody known"
    assert "no news from the watchdog for 4.1 s" in view.cause
    assert view.policy_state == "no news"


def test_a_silent_node_is_a_problem(board):
    problems = board.view(20.0).problems
    assert ("executor", "silent for 10 s", 3) in problems


def test_the_worst_problem_comes_first(board):
    board.hear_diagnostics("policy: inference", Status(9.9, 2, "3 inferences failed", {}))
    board.hear_diagnostics("executor: loop", Status(9.9, 1, "no real-time priority", {"realtime": "refused"}))
    assert [level for _, _, level in board.view(10.0).problems] == [2, 1]
    assert "3 inferences failed" in drawn(board, 10.0)


def test_a_late_input_is_marked(board):
    board.hear_diagnostics("watchdog: inputs", Status(9.9, 1, "silent", {"joint_state_age_s": "0.4"}))
    (age,) = [age for age in board.view(10.0).ages if age.name == "joint states"]
    assert age.late


def test_lost_frames_are_named_by_topic_with_what_to_do(board):
    assert "Lost" not in drawn(board, 10.0)
    values = {"camera./front/image_raw.lost": "312", "camera./front/image_raw.lost_share": "0.01",
              "camera./wrist/image_raw.lost": "0", "camera./third/image_raw.lost": "None"}  # fmt: skip
    board.hear_diagnostics("policy: inputs", Status(9.9, 0, "pictures and joints in time", values))
    assert board.view(10.0).lost == {"/front/image_raw": 312}
    text = " ".join(drawn(board, 10.0).split())
    assert "Lost /front/image_raw 312 frames: see 'Pictures are lost' in docs/troubleshooting.md" in text


def test_without_a_policy_it_says_that_there_is_none_instead_of_zeros():
    """What a watchdog and an executor that nobody ever answered say."""
    board = Board()
    board.hear_state("watchdog", Status(9.9, 1, "WARMUP", {"cause": "no plan", "in_command": "none"}))
    values = {"joint_state_age_s": "0.008", "request_age_s": "None", "heartbeat_age_s": "None", "stream_age_s": "inf"}
    board.hear_diagnostics("watchdog: inputs", Status(9.5, 1, "silent", values))
    figures = {"accepted": "0", "delay_ms.p99": "0", "delay_planning_ms": "100", "seam_jump.p99": "0", "k": "10"}
    board.hear_diagnostics("executor: plan", Status(9.5, 1, "nothing to say", figures))
    lines = [line.split() for line in drawn(board, 10.0).splitlines()]
    text = [" ".join(line) for line in lines]
    for said in ("request none open", "heartbeat none heard", "plan stream never", "Policy none heard",
                 "delay p99 no plan yet", "seams p99 no plan yet", "accepted 0, refused 0"):  # fmt: skip
        assert any(said in line for line in text), (said, text)
    assert not any(" 0 ms" in line or "0.000 rad" in line for line in text)


def test_the_delay_before_it_is_warm_is_the_one_that_is_planned_with(board):
    values = {"accepted": "1", "delay_ms.p99": "0", "delay_planning_ms": "310.4", "seam_jump.p99": "0"}
    board.hear_diagnostics("executor: plan", Status(9.6, 0, "following", values))
    assert "310 ms" in drawn(board, 10.0)


def test_nothing_heard_says_what_to_do():
    text = drawn(Board(), 1.0)
    assert "Nothing heard" in text
    assert "ROS_DOMAIN_ID" in text


def test_statuses_of_others_do_not_disturb(board):
    before = board.view(10.0)
    board.hear_diagnostics("controller_manager", Status(9.9, 2, "overrun", {}))
    assert board.view(10.0) == before


def test_values_that_are_no_numbers_do_not_end_the_screen(board):
    board.hear_diagnostics("watchdog: inputs", Status(9.9, 0, "", {"joint_state_age_s": "unknown", "stream_age_s": ""}))
    board.hear_diagnostics("executor: loop", Status(9.9, 0, "", {"rate_hz": "?"}))
    assert "?" in drawn(board, 10.0)


def test_every_state_has_a_colour():
    assert set(COLOURS) == {str(state) for state in State}


@pytest.mark.parametrize(("seconds", "text"), [(8.24, "8.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_durations(seconds, text):
    assert duration(seconds) == text
