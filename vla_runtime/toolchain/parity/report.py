"""parity_report.md: the record for people, with plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPORT_FILE = "parity_report.md"
LAYERS_SHOWN = 10


def write_report(directory: Path, record: dict[str, Any]) -> Path:
    """Write parity_report.md and its plots (parity_*.png) into ``directory``; return the report's path."""
    levels, seen = record["levels"], record["observations"]
    lines = [
        f"# Parity: {record['verdict']}",
        "",
        f"Engine {record['engine']} ({record['engine_version']}, {record['device']}) against "
        f"{record['reference']['name']}, on {seen['count']} observations ({seen['source']}); {record['made_at']}.",
        "",
        "| level | verdict | what |",
        "|---|---|---|",
    ]
    for name, level in levels.items():
        lines.append(
            f"| {name} | {level['verdict']} | {'; '.join(level['faults']) or _summary(name, level['figures'])} |"
        )
    lines += _stages(record["stages"])
    if "ticks" in levels and levels["ticks"]["figures"]:
        lines += _ticks(levels["ticks"]["figures"])
        lines += _plot_positions(directory, levels)
    if "layers" in levels:
        lines += _layers(levels["layers"]["figures"]["layers"])
    if record["episodes"]:
        lines += _closed_loop(levels["closed_loop"]["figures"])
    lines += ["", "Files:", "", *(f"* `{name}` {digest}" for name, digest in record["files"].items())]
    path = directory / REPORT_FILE
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _summary(name: str, figures: dict[str, Any]) -> str:
    if name in ("stages", "checkpoint_stages"):
        return f"worst cosine {min(row['cosine_worst'] for row in figures['outputs']):.6f}"
    if name in ("ticks", "checkpoint"):
        return f"largest error {figures['max_abs_rad']:.2e} rad"
    if name == "trajectories":
        return f"tool drift {figures['mean_m'] * 1e3:.3f} mm mean, {figures['p99_m'] * 1e3:.3f} mm P99"
    if name == "closed_loop" and "drop_bounds" in figures:
        low, high = figures["drop_bounds"]
        return f"drop in success {figures['drop']:.1%} ({low:.1%} to {high:.1%}) over {figures['episodes']} pairs"
    return str(figures.get("note", ""))


def _stages(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = ["", "## Stages", "", "| stage | output | mean cosine | worst | relative error |", "|---|---|---|---|---|"]
    for row in rows:
        numbers = f"{row['cosine_mean']:.6f} | {row['cosine_worst']:.6f} | {row['relative_error']:.2e}"
        lines.append(f"| {row['stage']} | {row['output']} | {numbers} |")
    return lines


def _ticks(figures: dict[str, Any]) -> list[str]:
    lines = ["", "## Ticks", "", "In units of the action's standard deviation; the last column in rad.", ""]
    lines += ["| joint | MSE | P99 | RMSE rad |", "|---|---|---|---|"]
    for row in zip(figures["joints"], figures["mse"], figures["p99"], figures["rmse_rad"]):
        lines.append("| {} | {:.3g} | {:.3g} | {:.3g} |".format(*row))
    return lines


def _layers(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["", "## Layers, worst first", "", "| stage | layer | mean cosine | worst |", "|---|---|---|---|"]
    for row in rows[:LAYERS_SHOWN]:
        lines.append(f"| {row['stage']} | {row['layer']} | {row['cosine_mean']:.6f} | {row['cosine_worst']:.6f} |")
    return lines


def _closed_loop(figures: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## Closed loop",
        "",
        "| policy | successes | 95 % interval | how episodes ended |",
        "|---|---|---|---|",
    ]
    for who in ("reference", "candidate"):
        low, high = figures["ci"][who]
        how = ", ".join(f"{label} {count}" for label, count in sorted(figures["how"][who].items()))
        lines.append(
            f"| {who} | {figures['successes'][who]} of {figures['episodes']} | {low:.1%} to {high:.1%} | {how} |"
        )
    lines += [
        "",
        f"Pairs in which only the reference succeeded: {figures['only_reference']}; only the candidate: "
        f"{figures['only_candidate']}. McNemar p = {figures['mcnemar_p']:.3f}. Pairs needed to settle it: "
        f"{figures['episodes_needed'] if figures['episodes_needed'] is not None else 'none would'}.",
    ]
    return lines


def _plot_positions(directory: Path, levels: dict[str, Any]) -> list[str]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3))
    axes.plot(levels["ticks"]["figures"]["rmse_by_position"], label="actions, std")
    drift = levels.get("trajectories", {}).get("figures", {}).get("mean_m_by_position")
    if drift:
        right = axes.twinx()
        right.plot([value * 1e3 for value in drift], color="tab:orange")
        right.set_ylabel("tool drift, mm", color="tab:orange")
    axes.set_xlabel("row of the chunk")
    axes.set_ylabel("RMSE, standard deviations")
    figure.tight_layout()
    figure.savefig(directory / "parity_positions.png", dpi=90)
    plt.close(figure)
    return ["", "![error by position in the chunk](parity_positions.png)"]
