"""Charts as SVG text, drawn for the width of a phone (readable without zooming) and sharp at any other."""

import io
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import numpy as np  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from vla_runtime.toolchain.run_log import Measured, Motion  # noqa: E402

WIDTH_IN, HEIGHT_IN = 4.4, 2.1
COMMAND, MEASURED, CHUNK, SEAM = "#1f4e79", "#d0761b", "#9db7d1", "#c2185b"
MOST_CHUNKS = 60
READABLE_SEAMS = 60
STATE_COLOURS = {
    "NOMINAL": "#2e7d32",
    "COASTING": "#f9a825",
    "FALLBACK": "#c62828",
    "FAULT": "#6a0000",
    "HOLD": "#7b1fa2",
    "TELEOP": "#00838f",
    "WARMUP": "#1565c0",
    "INACTIVE": "#757575",
}


def figure() -> tuple[Figure, Axes]:
    """Return an empty figure of our size and style."""
    made = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = made.add_subplot()
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return made, axes


def svg(made: Figure) -> str:
    """Return the figure as an <svg> element that takes the width it is given."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vla"}):
        made.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    head, _, rest = body.partition(">")
    # Width and height in points would fix the size; the viewBox alone lets the page decide.
    words = [word for word in head.split() if not word.startswith(("width=", "height="))]
    return " ".join(words) + ">" + rest


def joint_chart(
    joint: str, commands: Sequence[Motion], chunks: Sequence[Motion], measured: Sequence[Measured], unit: str = "rad"
) -> str:
    """One joint over time: the plans as they came (pale), the seams between them, command and measurement."""
    made, axes = figure()
    for chunk in _thinned(chunks, MOST_CHUNKS):
        if joint in chunk.joint_names:
            column = chunk.joint_names.index(joint)
            axes.plot(chunk.stamp + chunk.times, chunk.positions[:, column], color=CHUNK, linewidth=0.6, alpha=0.7)
    times, values = command_line(joint, commands)
    axes.plot(times, values, color=COMMAND, linewidth=1.3, label="command")
    t, q = measured_line(joint, measured)
    if len(t):
        axes.plot(t, q, color=MEASURED, linewidth=0.9, label="measured")
    times = seams(commands)
    alpha = 0.35 * min(1.0, READABLE_SEAMS / max(len(times), 1))  # of a long run they would hide the curves
    for seam in times:
        axes.axvline(seam, color=SEAM, linewidth=0.5, alpha=alpha)
    _fit(axes, values, q)
    axes.set_title(joint, fontsize=9, loc="left")
    axes.set_ylabel(unit, fontsize=8)
    axes.set_xlabel("s", fontsize=8)
    _legend(axes, 2)
    return svg(made)


def command_line(joint: str, commands: Sequence[Motion]) -> tuple[np.ndarray, np.ndarray]:
    """The command at each message's stamp: times (m,), positions (m,)."""
    own = [command for command in commands if joint in command.joint_names]
    times = np.array([command.stamp for command in own])
    return times, np.array([command.positions[0, command.joint_names.index(joint)] for command in own])


def measured_line(joint: str, measured: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """The measured positions: times (m,), positions (m,)."""
    own = [sample for sample in measured if joint in sample.joint_names]
    return np.array([s.stamp for s in own]), np.array([s.positions[s.joint_names.index(joint)] for s in own])


def seams(commands: Sequence[Motion]) -> list[float]:
    """Instants at which the command went over to another plan."""
    found, last = [], ""
    for command in commands:
        if ":" in command.plan_id and command.plan_id != last:
            if last:
                found.append(command.stamp)
            last = command.plan_id
    return found


def seam_sizes(commands: Sequence[Motion]) -> np.ndarray:
    """How far the new command was from what the old message said for that instant, largest joint, rad: (seams,)."""
    sizes = []
    for before, after in zip(commands, commands[1:]):
        if not (":" in after.plan_id and ":" in before.plan_id) or after.plan_id == before.plan_id:
            continue  # of the same plan, or of a fallback or an operator, who name themselves
        t = after.stamp - before.stamp
        said = [np.interp(t, before.times, before.positions[:, i]) for i in range(len(before.joint_names))]
        if before.joint_names == after.joint_names:
            sizes.append(float(np.abs(after.positions[0] - said).max()))
    return np.array(sizes)


def latency_chart(latency: Sequence[tuple[float, dict[str, float]]]) -> str:
    """Time of each answer by stage, stacked, over time."""
    made, axes = figure()
    stages = [s for s in dict.fromkeys(stage for _, row in latency for stage in row) if s not in NOT_STACKED]
    times = np.array([t for t, _ in latency])
    rows = np.array([[row.get(stage, 0.0) for _, row in latency] for stage in stages])
    axes.stackplot(times, rows, labels=stages, alpha=0.85)
    axes.set_ylabel("ms", fontsize=8)
    axes.set_xlabel("s", fontsize=8)
    axes.set_ylim(bottom=0)
    _legend(axes, 4)
    return svg(made)


NOT_STACKED = ("total", "observation_age")
"""Stages that contain others, or that are no time of computing."""


def histogram(values: Sequence[float], label: str, bins: int = 40) -> str:
    """How often each value."""
    made, axes = figure()
    axes.hist(values, bins=bins, color=COMMAND, alpha=0.85)
    axes.set_xlabel(label, fontsize=8)
    axes.set_ylabel("count", fontsize=8)
    return svg(made)


def period_chart(commands: Sequence[Motion]) -> str:
    """The time between consecutive commands as they arrived."""
    made, axes = figure()
    received = np.array([command.received for command in commands])
    axes.plot(received[1:], np.diff(received) * 1e3, color=COMMAND, linewidth=0.7)
    axes.axhline(20.0, color="black", linewidth=0.5, alpha=0.5)
    axes.set_ylabel("ms", fontsize=8)
    axes.set_xlabel("s", fontsize=8)
    axes.set_ylim(bottom=0)
    return svg(made)


def _legend(axes: Axes, columns: int) -> None:
    """Name the lines above the axes, where there is nothing to cover."""
    axes.legend(
        fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1, frameon=False, ncols=columns,
        columnspacing=1.0, handlelength=1.4,
    )  # fmt: skip


def _thinned(items: Sequence, most: int) -> Sequence:
    step = max(1, -(-len(items) // most))
    return items[::step]


def _fit(axes: Axes, *lines: np.ndarray) -> None:
    """Let the plans' tails, which were never driven, not squeeze what was."""
    values = np.concatenate([line for line in lines if len(line)] or [np.zeros(1)])
    low, high = float(values.min()), float(values.max())
    room = max(0.15 * (high - low), 0.02)
    axes.set_ylim(low - room, high + room)
