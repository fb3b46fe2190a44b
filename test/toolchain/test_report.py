"""The page about a run: whole in itself, true to the bag, safe against what a bag may contain."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from vla_runtime.toolchain.report import charts
from vla_runtime.toolchain.report.page import page
from vla_runtime.toolchain.run_log import Measured, Motion, RunLog, Status

NAMES = ("a", "b")


def motion(t: float, plan: str, offset: float = 0.0) -> Motion:
    times = np.linspace(0, 0.2, 11)
    positions = np.column_stack([np.sin(t + times) + offset, 0.1 * np.cos(t + times)])
    return Motion(t + 0.001, t, plan, NAMES, times, positions, np.zeros((11, 2)))


@pytest.fixture
def run() -> RunLog:
    commands = [motion(0.02 * i, f"e:{i // 25}") for i in range(200)]
    states = [
        ("WARMUP", "waiting"),
        ("NOMINAL", "first good plan"),
        ("FALLBACK", "<script>alert(1)</script>"),
        ("NOMINAL", "recovered"),
    ]
    return RunLog(
        duration=4.0,
        commands=commands,
        chunks=[motion(0.5 * i, f"e:{i}") for i in range(8)],
        requests=[motion(0.5 * i, f"e:{i}") for i in range(8)],
        measured=[Measured(0.01 * i, NAMES, np.array([np.sin(0.01 * i), 0.1])) for i in range(400)],
        watchdog=[
            Status(float(i), s, 0, {"cause": cause, "missed.answer": "3"}) for i, (s, cause) in enumerate(states)
        ],
        executor=[Status(3.0, "planning", 0, {"k": "12", "refused.jump": "2", "refused.late": "0"})],
        latency=[(0.1 * i, {"vision": 20.0, "action": 30.0, "total": 50.0 + i}) for i in range(30)],
        instruction=[(0.0, "pick up the <red> cube")],
        images={"/front/image_raw": [(0.1 * i, np.full((24, 32, 3), i, np.uint8)) for i in range(20)]},
    )  # fmt: skip


class Checker(HTMLParser):
    """Notes what a page loads from elsewhere, and whether its elements close."""

    VOID = {"meta", "img", "br", "link", "input"}

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for key, value in attrs if key in ("src", "href", "data") and value[:1] != "#"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        assert self.open.pop() == tag


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker


def test_the_page_needs_nothing_from_outside(run):
    checker = check(page(run, "a run"))
    assert checker.loads
    assert all(load.startswith("data:image/jpeg;base64,") for load in checker.loads)
    assert "script" not in checker.tags


def test_what_a_bag_says_is_text_not_markup(run):
    text = page(run, "<b>bold</b>")
    assert "&lt;script&gt;" in text
    assert "&lt;red&gt;" in text
    assert "<b>bold" not in text


def test_it_says_who_had_the_arm_and_for_how_long(run):
    text = page(run, "a run")
    assert "the policy had the arm for 50.0 %" in text
    assert "the fallback for 1.00 s" in text
    assert text.count("<span style='flex:") == 4


def test_misses_and_refusals_are_listed_and_zeros_are_not(run):
    rows = re.findall(r"<td>(watchdog|executor)</td><td>([^<]*)</td><td class=n>(\d+)</td>", page(run, "a run"))
    assert rows == [("watchdog", "missed: answer", "3"), ("executor", "refused: jump", "2")]


def test_a_phone_can_show_it(run):
    text = page(run, "a run")
    assert "width=device-width" in text
    for svg in re.findall(r"<svg[^>]*>", text):
        assert "viewBox" in svg
        assert "width=" not in svg


def test_an_empty_bag_is_a_page_too():
    text = page(RunLog(duration=1.0), "empty")
    check(text)
    assert "no state of a watchdog" in text


def test_a_run_without_traces_of_latency_shows_the_answers_ages(run):
    run.latency = []
    assert "observation to answer, ms" in page(run, "a run")


def test_seams_are_where_the_plan_changes(run):
    assert len(charts.seams(run.commands)) == 7
    assert charts.seam_sizes(run.commands).max() < 1e-3
    run.commands[50:] = [motion(c.stamp, c.plan_id, offset=0.3) for c in run.commands[50:]]
    assert charts.seam_sizes(run.commands).max() == pytest.approx(0.3, abs=1e-3)


STAGES = ("wait", "preprocess", "tokenize", "vision", "backbone", "action", "postprocess")


@pytest.mark.parametrize("chart", ["latency", "joint"])
def test_no_legend_covers_what_is_drawn(run, monkeypatch, chart):
    """It stood where the highest peaks of the latency are."""
    drawn = []
    monkeypatch.setattr(charts, "svg", lambda made: drawn.append(made) or "")
    if chart == "latency":
        charts.latency_chart([(0.1 * i, dict.fromkeys(STAGES, 20.0 + i)) for i in range(30)])
    else:
        charts.joint_chart("a", run.commands, run.chunks, run.measured)
    (made,) = drawn
    made.draw_without_rendering()
    (axes,) = made.axes
    legend = axes.get_legend().get_window_extent()
    assert not legend.overlaps(axes.get_window_extent())
    assert not legend.overlaps(axes._left_title.get_window_extent()) or not axes._left_title.get_text()
    assert legend.x0 >= 0.0 and legend.x1 <= made.bbox.x1 and legend.y1 <= made.bbox.y1
    assert axes.get_window_extent().height > 0.5 * made.bbox.height


def test_many_joints_are_folded(run):
    names = tuple(f"j{i}" for i in range(26))
    rng = np.random.default_rng(0)
    for i, command in enumerate(run.commands):
        wide = rng.normal(size=(11, 26)) * 1e-3 + np.arange(26) * 0.001 * i
        run.commands[i] = Motion(command.received, command.stamp, command.plan_id, names, command.times, wide, wide)
    text = page(run, "wide")
    assert "18 joints that moved less" in text
    assert text.index("<details>") < text.index(">j1<") or text.index("<details>") < text.index("j1</text>")
