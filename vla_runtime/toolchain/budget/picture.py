"""The stacked-bar picture: one bar a budget, one colour a stage, the floor as a mark."""

from collections.abc import Sequence
from pathlib import Path

from vla_runtime.toolchain.budget.errors import BudgetError, BudgetUsageError
from vla_runtime.toolchain.budget.report import Report
from vla_runtime.toolchain.budget.stages import STAGES

# Okabe and Ito's palette: told apart with every kind of colour vision
COLOURS = {"vision": "#0072B2", "prefill": "#E69F00", "decode": "#CC79A7", "action": "#009E73"}
SUFFIXES = (".png", ".svg", ".pdf")


def write_picture(results: Sequence[Report], path: str | Path) -> Path:
    """Draw the budgets as stacked bars (and, where there are measurements, a second bar for them) into ``path``.

    Raises:
        BudgetError: the file's ending is none of png, svg, pdf, or it cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise BudgetUsageError(f"picture '{target}': the name must end in {', '.join(SUFFIXES)}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [bar for result in results for bar in _bars(result)]
    figure, axes = pyplot.subplots(figsize=(8, 1.4 + 0.55 * len(bars)), layout="constrained")
    present = [name for name in STAGES if any(name in times for _, times, _ in bars)]
    longest = max(sum(times.values()) for _, times, _ in bars)
    for row, (_, times, floor_ms) in enumerate(bars):
        left = 0.0
        for name in present:
            width = times.get(name, 0.0)
            axes.barh(row, width, left=left, color=COLOURS[name], label=name if row == 0 else None, height=0.62)
            if width > 0.06 * longest:
                axes.text(left + width / 2, row, f"{width:.3g}", ha="center", va="center", color="white", fontsize=9)
            left += width
        axes.text(left + 0.01 * longest, row, f"{left:.4g} ms", va="center", fontsize=9)
        for side in (-1, 1) if floor_ms else ():  # above and below the bar, so that no number is crossed out
            label = "physical floor" if side == 1 else None
            axes.plot([floor_ms] * 2, [row + 0.31 * side, row + 0.46 * side], color="black", linewidth=3, label=label)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * longest)
    axes.set_xlabel("one inference, ms")
    axes.spines[["top", "right"]].set_visible(False)
    shapes, labels = axes.get_legend_handles_labels()
    handles = dict(zip(labels, shapes))
    names = [*present, "physical floor"]
    figure.legend([handles[name] for name in names if name in handles], [name for name in names if name in handles],
                  loc="outside upper center", ncols=5, frameon=False)  # fmt: skip
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise BudgetError(f"picture '{target}': cannot be written: {error}") from None
    finally:
        pyplot.close(figure)
    return target


def _bars(result: Report) -> list[tuple[str, dict[str, float], float | None]]:
    label = f"{result.policy}\n{result.device}, {result.precision if result.budget else 'published'}"
    if result.budget is None:
        return [(label, result.stage_ms, None)]
    if not result.overlay:
        return [(label, result.stage_ms, result.budget.floor_ms)]
    predicted = {row.stage: row.predicted_ms for row in result.overlay}
    measured = {row.stage: row.measured_ms for row in result.overlay}
    floor = sum(row.floor_ms for row in result.overlay)
    return [(f"{label}\npredicted", predicted, floor), (f"{label}\nmeasured", measured, floor)]
