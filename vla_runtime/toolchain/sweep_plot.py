"""The picture of a sweep: success and seam jumps against K, one column per blending, one line per added delay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PANEL_IN = (3.2, 2.6)


def plot(path: Path, rows: Sequence[dict[str, Any]], reference_success: float, title: str) -> None:
    """Write a PNG. rows: of `Outcome.row`; reference_success: the synchronous run's, drawn as a dashed line."""
    blends = list(dict.fromkeys(row["blend"] for row in rows))
    delays = sorted({row["added_delay"] for row in rows})
    colours = plt.get_cmap("viridis")
    width, height = PANEL_IN
    figure, axes = plt.subplots(
        2, len(blends), figsize=(width * len(blends) + 0.6, 2 * height), sharex=True, sharey="row", squeeze=False
    )
    for column, blend in enumerate(blends):
        success, seam = axes[0][column], axes[1][column]
        success.axhline(reference_success, linestyle="--", color="0.5", linewidth=1)
        for i, delay in enumerate(delays):
            line = sorted((r for r in rows if r["blend"] == blend and r["added_delay"] == delay), key=lambda r: r["k"])
            if not line:
                continue
            beside = 0.5 * (i - (len(delays) - 1) / 2)  # else equal points would hide each other
            ks = [row["k"] + beside for row in line]
            rate = [row["success"] for row in line]
            low = [row["success"] - row["success_low"] for row in line]
            high = [row["success_high"] - row["success"] for row in line]
            style = {"color": colours(i / max(len(delays) - 1, 1) * 0.85), "marker": "o", "markersize": 4}
            success.errorbar(ks, rate, [low, high], capsize=2, linewidth=1.4, label=f"+{delay:g} ticks", **style)
            seam.plot(ks, [1e3 * row["seam_jump_p95_rad"] for row in line], linewidth=1.4, **style)
        success.set_title(blend)
        success.set_ylim(-0.03, 1.03)
        seam.set_xlabel("K (control periods of 20 ms)")
        for axis in (success, seam):
            axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("success (95 % interval)")
    axes[1][0].set_ylabel("seam jump, p95 (mrad)")
    axes[1][0].set_ylim(bottom=0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, title="added delay", loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=130)
    plt.close(figure)
