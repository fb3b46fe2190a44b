"""The board as a terminal screen: readable at 80 columns, in colour and without."""

import math
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vla_runtime.toolchain.monitor.board import LEVELS, View

COLOURS = {
    "NOMINAL": "green",
    "COASTING": "yellow",
    "FALLBACK": "red",
    "FAULT": "bold red",
    "HOLD": "magenta",
    "TELEOP": "cyan",
    "WARMUP": "blue",
    "INACTIVE": "blue",
}
LEVEL_COLOURS = ("green", "yellow", "red", "magenta")
WIDTH = 80
NOT_DUE = {"request": "none open", "heartbeat": "none heard"}
"""What may be absent without a fault, and what is said then."""
WHAT_TO_DO = (
    "Nothing heard. Is the runtime started, in this ROS_DOMAIN_ID and namespace? `ros2 node list` should show "
    "/watchdog, /executor and /policy. ROS_AUTOMATIC_DISCOVERY_RANGE must be the same for both, too; `vla demo` has "
    "its own of LOCALHOST."
)


def screen(view: View, title: str = "", width: int = WIDTH) -> RenderableType:
    """Return the whole screen, at most ``width`` columns wide."""
    if not view.heard:
        return Panel(Text(WHAT_TO_DO), title=title, title_align="left", width=width, border_style="magenta")
    parts: list[RenderableType] = [
        _command(view, title, width),
        *([_problems(view, width)] if view.problems else []),  # a low window cuts off what is below
        _side_by_side(_timing(view), _inputs(view), width),
        "",
        _side_by_side(_plans(view), _policy(view), width),
        "",
        _counters(view, width),
    ]
    return Group(*parts)


def _command(view: View, title: str, width: int) -> Panel:
    colour = COLOURS.get(view.state, "magenta")
    lasted = "" if view.since_s is None else f" for {duration(view.since_s)}"
    head = Text.assemble((view.in_command.upper(), f"bold {colour}"), " is in command   ", (view.state, colour), lasted)
    body = Table.grid(padding=(0, 1))
    body.add_row(head)
    if view.cause:
        body.add_row(Text(view.cause))
    if len(view.publishers) > 1:
        names = ", ".join(view.publishers)
        body.add_row(Text(f"{len(view.publishers)} publishers command the arm: {names}", style="bold red"))
    return Panel(body, title=title or None, title_align="left", width=width, border_style=colour)


def _side_by_side(left: RenderableType, right: RenderableType, width: int) -> Table:
    grid = Table.grid(padding=(0, 1), expand=False)
    grid.add_column(width=width // 2 - 1)
    grid.add_column(width=width - width // 2 - 1)
    grid.add_row(left, right)
    return grid


def _block(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)


def _timing(view: View) -> Table:
    table = Table(
        title="Timing", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("", no_wrap=True)
    for name in ("Hz", "±p99 ms", "gap ms"):
        table.add_column(name, justify="right", no_wrap=True)
    stream = view.stream
    if stream.rate_hz:
        style = "red" if stream.silent_s > 0.1 else ""
        table.add_row("commands, here", f"{stream.rate_hz:.1f}", f"{stream.jitter_p99_ms:.2f}",
                      f"{stream.max_gap_ms:.0f}", style=style)  # fmt: skip
    else:
        table.add_row("commands, here", Text("none", style="dim"), "", "")
    for node, loop in sorted(view.loops.items(), reverse=True):
        keys = (("rate_hz", 1), ("period_error_p99_ms", 2), ("max_gap_ms", 0))
        table.add_row(f"{node} loop", *(_figure(loop.get(key), "", digits) for key, digits in keys))
    return table


def _inputs(view: View) -> Table:
    table = _block("Ages of inputs")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    for age in view.ages:
        seen = age.age_s is not None and not math.isinf(age.age_s)
        optional = NOT_DUE.get(age.name)  # its absence is no fault: another line says whose absence is one
        text = f"{age.age_s * 1e3:.0f} ms" if seen else optional or "never"
        limit = "" if age.limit_s is None else f"/ {age.limit_s * 1e3:.0f}"
        style = "red" if age.late or not (seen or optional or age.limit_s is None) else "" if seen else "dim"
        table.add_row(age.name, Text(text, style=style), limit)
    if not view.ages:
        table.add_row(Text("no diagnostics yet", style="dim"), "", "")
    return table


def _plans(view: View) -> Table:
    e, table = view.executor, _block("Plans")
    table.add_column(no_wrap=True)
    table.add_column()
    if not e:
        table.add_row(Text("the executor is silent", style="red"), "")
        return table
    k = e.get("k", "?")
    unsafe = e.get("k_unsafe") == "true"
    wanted = f" (set to {e['k_set']})" if e.get("k_set", k) != k else ""
    table.add_row("K", Text(f"{k}{wanted}, safe: {e.get('k_range', '?')}", style="red" if unsafe else ""))
    accepted = e.get("accepted", "0")
    if accepted == "0":  # figures over no plan would be zeros
        delay = seams = Text("no plan yet", style="dim")
    else:
        warm = e.get("delay_ms.p99", "0")  # the first answers after a start are not in it
        delay = _figure(warm if warm != "0" else e.get("delay_planning_ms"), " ms", 0)
        seams = _figure(e.get("seam_jump.p99"), " rad", 3)
    table.add_row("delay p99", delay)
    table.add_row("blending", e.get("blend", "?"))
    table.add_row("seams p99", seams)
    refused = sum(count for reason, count in view.refused.items() if reason.startswith("plan "))
    table.add_row("accepted", f"{accepted}, refused {refused}")
    table.add_row("running", e.get("plan", "") or Text("none", style="dim"))
    return table


def _policy(view: View) -> RenderableType:
    ready = view.policy_state == "ready"
    head = Text.assemble(("Policy ", "bold"), (view.policy_state, "green" if ready else "red"))
    table = Table(box=None, pad_edge=False)
    table.add_column("ms", no_wrap=True)
    for name in ("p50", "p95", "p99", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in view.latency:
        # Four characters each: a slow model's seconds must not push the names out of 80 columns.
        values = (row.p50, row.p95, row.p99, row.max)
        table.add_row(row.stage, *(f"{value:.1f}" if value < 99.95 else f"{value:.0f}" for value in values))
    facts = []
    if view.model_name:
        engines = {value for key, value in view.model.items() if key.startswith("engines.")}
        proof = next((value for key, value in view.model.items() if key.startswith(("parity", "proof"))), "")
        line = ", ".join(part for part in (view.model_name, *sorted(engines)) if part)
        facts.append(Text(line + (f"; parity: {proof}" if proof else ""), style="dim"))
    if view.policy.get("instruction"):
        facts.append(Text(f"“{view.policy['instruction']}”", style="italic"))
    return Group(head, *facts, table if view.latency else Text("no answers heard yet", style="dim"))


def _counters(view: View, width: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=9)
    table.add_column(width=width - 11)
    table.add_row(Text("Misses", style="bold"), _counts(view.missed))
    table.add_row(Text("Refused", style="bold"), _counts(view.refused))
    if view.lost:
        table.add_row(Text("Lost", style="bold"), _lost(view.lost))
    return table


def _lost(frames: Mapping[str, int]) -> Text:
    counts = ", ".join(f"{topic} {count} frames" for topic, count in frames.items())
    return Text(f"{counts}: see 'Pictures are lost' in docs/troubleshooting.md")


def _counts(counts) -> Text:
    return Text(
        "   ".join(f"{name} {count}" for name, count in counts.items()) or "none", style="" if counts else "dim"
    )


def _problems(view: View, width: int) -> Panel:
    table = Table.grid(padding=(0, 1))
    for who, what, level in view.problems[:8]:
        table.add_row(Text(LEVELS[level], style=LEVEL_COLOURS[level]), who, Text(what))
    more = len(view.problems) - 8
    if more > 0:
        table.add_row("", "", Text(f"and {more} more: ros2 topic echo /diagnostics", style="dim"))
    worst = max(level for _, _, level in view.problems)
    return Panel(table, title="Problems", title_align="left", width=width, border_style=LEVEL_COLOURS[worst])


def _figure(text: str | None, unit: str, digits: int) -> str:
    try:
        return f"{float(text):.{digits}f}{unit}"
    except (TypeError, ValueError):
        return "?"


def duration(seconds: float) -> str:
    """Return 8.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
