"""Budgets for people: tables in the terminal (80 columns are enough) and in Markdown."""

from collections.abc import Sequence

from vla_runtime.toolchain.budget.report import Report
from vla_runtime.toolchain.budget.stages import STAGES

LEGEND = "B batch, M outputs, N tokens, K inputs; *: VLA-Perf counts it, the released code does not run it"
MARK = {"error": "✗", "warning": "!", "note": "·"}
STYLE = {"error": "bold red", "warning": "yellow", "note": "dim"}


def ms(value: float) -> str:
    """Return milliseconds with two decimals, so that the points of a column stand under each other."""
    return f"{value:.2f}"


def stage_table(result: Report) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the stages; with a measurement also the measured columns."""
    if result.budget is None:
        rows = [[name, ms(value)] for name, value in result.stage_ms.items()]
        return ["stage", "ms"], [*rows, ["total", ms(result.total_ms)]]
    header = ["stage", "ms", "bound", "roofline", "floor", "FLOP/B", "weights", "passes"]
    rows = [
        [stage.name, ms(stage.ms), stage.bound, ms(stage.roofline_ms), ms(stage.floor_ms), f"{stage.intensity:.1f}",
         _size(stage.weight_bytes), str(stage.passes)]
        for stage in result.budget.stages
    ]  # fmt: skip
    budget = result.budget
    rows.append(["total", ms(budget.total_ms), "", ms(budget.roofline_ms), ms(budget.floor_ms), "", "", ""])
    return header, rows


def overlay_table(result: Report) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of predicted against measured stages."""
    header = ["stage", "predicted", "measured", "meas/pred", "floor", "meas/floor", "efficiency"]
    rows = [
        [row.stage, ms(row.predicted_ms), ms(row.measured_ms), f"{row.ratio:.2f}{'' if row.close else ' !'}",
         ms(row.floor_ms), f"{row.floor_ratio:.1f}", f"{row.efficiency:.2f}"]
        for row in result.overlay
    ]  # fmt: skip
    return header, rows


def operator_tables(result: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return (title, header, rows) for every stage: its operators, the longest first (``--explain``).

    Equal operators of different groups of layers are one row.
    """
    header = ["operator", "times", "ms", "%", "bound", "GFLOP", "MB", "B x M x N x K"]
    tables = []
    for stage in result.budget.stages if result.budget else ():
        groups: dict[tuple, list] = {}
        for cost in stage.operators:
            shape = " x ".join(map(str, cost.operator.shape))
            name = cost.operator.name + ("*" if cost.operator.counted_twice else "")
            groups.setdefault((name, shape, cost.bound), []).append(cost)
        rows = []
        for (name, shape, bound), costs in sorted(groups.items(), key=lambda item: -sum(cost.ms for cost in item[1])):
            spent, flop, moved = (sum(getattr(cost, key) for cost in costs) for key in ("ms", "flop", "bytes"))
            share = 100 * spent / stage.roofline_ms if stage.roofline_ms else 0.0
            rows.append([name, str(sum(cost.executions for cost in costs)), f"{spent:.3f}", f"{share:.0f}", bound,
                         _amount(flop / 1e9), _amount(moved / 1e6), shape])  # fmt: skip
        tables.append((f"{stage.name}: {stage.work}, {ms(stage.roofline_ms)} ms of roofline", header, rows))
    return tables


def comparison_table(results: Sequence[Report]) -> tuple[str, list[str], list[list[str]]]:
    """Return title, header and rows of several budgets side by side; what is the same in all goes into the title."""
    names = {
        "policy": [result.policy for result in results],
        "device": [result.device for result in results],
        "mode": [result.precision for result in results],
    }
    same = [column[0] for column in names.values() if len(set(column)) == 1]
    differing = {key: column for key, column in names.items() if len(set(column)) > 1}
    stages = [name for name in STAGES if any(name in result.stage_ms for result in results)]
    header = [*differing, *stages, "total", "eff.", "d", "safe K"]
    rows = []
    for index, result in enumerate(results):
        control = result.control
        efficiency = f"{result.assumed.value:.2f}" if result.assumed else "-"
        safe = f"{control.k_min}-{control.k_max}" if control.k_min <= control.k_max else "none"
        times = [f"{result.stage_ms[name]:.1f}" if name in result.stage_ms else "-" for name in stages]
        rows.append([*(column[index] for column in differing.values()), *times, f"{result.total_ms:.1f}", efficiency,
                     str(control.delay_ticks), safe])  # fmt: skip
    return ", ".join(same), header, rows


def sentences(result: Report) -> list[tuple[str, str]]:
    """Return (style, text) of everything that is said beside the tables."""
    lines = []
    control, profile = result.control, result.profile
    if result.assumed:
        after = " The measured efficiencies replace it." if result.overlay else ""
        source = result.assumed.source.rstrip(".")
        lines.append(("", f"Prediction = roofline / {result.assumed.value:.2f} ({source}).{after}"))
    if result.branches.reasoning_tokens:
        lines.append(("", f"{result.branches.reasoning_tokens} tokens at {ms(profile.token_ms)} ms on "
                          f"{result.branches.share:.0%} of the inputs: {ms(control.mean_ms)} ms expected, "
                          f"{ms(control.slow_ms)} ms at worst."))  # fmt: skip
    if "trajectory_as_tokens" in result.notes:
        note = result.notes["trajectory_as_tokens"]
        lines.append(("", f"With the trajectory as {note['tokens']} tokens: {ms(note['total_ms'])} ms."))
    flagged = any(flag.code == "deadline_missed" for flag in result.flags)
    verdict = "" if flagged else f"; {control.verdict}"
    lines.append(("", f"Control at {control.control_hz:g} Hz: delay d = {control.delay_ticks} ticks "
                      f"({ms(control.slow_ms)} ms), horizon H = {control.horizon_ticks} ticks{verdict}."))  # fmt: skip
    lines.append(("", f"{control.plans_per_s:.2f} plans/s; oldest executed action {control.oldest_ms:.0f} ms old; "
                      f"idle {control.idle_ms:.0f} ms a cycle ({control.idle_share:.0%}); "
                      f"{control.effective_hz:.1f} waypoints/s."))  # fmt: skip
    lines += [(STYLE[flag.severity], f"{MARK[flag.severity]} {flag.message}") for flag in result.flags]
    return lines


def advice_lines(result: Report, most: int = 6) -> list[str]:
    """Return the advice as lines, the stage to attack first on top."""
    if not result.budget:
        return []
    if not result.advice:
        return ["Nothing that acts on the bounds that hold saves 5 % of a stage."]
    lines = [f"Attack {result.first} first."]
    for advice in result.advice[:most]:
        left = advice.before_ms - advice.saved_ms
        lines.append(f"{advice.stage} ({advice.bound}-bound): {advice.text}: {ms(advice.before_ms)} -> {ms(left)} ms")
    return lines


def print_report(result: Report, *, explain: bool = False, console=None) -> None:
    """Print one budget to the terminal."""
    console = console or _console()
    mode = f", {result.precision}" if result.budget else ", a published stage profile"
    unit = f" (bandwidth in {result.budget.unit} GB)" if result.budget and result.device != "this" else ""
    console.print(f"[bold]{result.policy}[/] on [bold]{result.device}[/]{mode}{unit}")
    _print_table(console, *stage_table(result))
    if result.overlay:
        _print_table(console, *overlay_table(result))
        if not all(row.close for row in result.overlay):
            console.print("! the prediction is more than 25 % off the measurement", style="yellow", highlight=False)
    for title, header, rows in operator_tables(result) if explain else ():
        console.print(title, style="bold", highlight=False, markup=False)
        _print_table(console, header, rows)
    if explain and result.budget:
        console.print(LEGEND, style="dim", highlight=False, markup=False)
    for style, text in sentences(result):
        console.print(text, style=style, highlight=False, markup=False)
    for text in advice_lines(result):
        console.print(f"→ {text}", style="cyan", highlight=False, markup=False)


def print_comparison(results: Sequence[Report], console=None) -> None:
    """Print several budgets side by side."""
    console = console or _console()
    title, header, rows = comparison_table(results)
    if title:
        console.print(title, style="bold", highlight=False, markup=False)
    _print_table(console, header, rows)
    for result in results:
        for flag in result.flags:
            if flag.severity != "note":
                text = f"{MARK[flag.severity]} {result.policy} on {result.device}: {flag.message}"
                console.print(text, style=STYLE[flag.severity], highlight=False, markup=False)


def markdown(results: Sequence[Report], *, explain: bool = False) -> str:
    """Return one budget, or several side by side, as Markdown."""
    if len(results) > 1:
        title, header, rows = comparison_table(results)
        lines = [*([f"## {title}", ""] if title else []), *_markdown_table(header, rows), ""]
        for result in results:
            lines += [f"- {result.policy} on {result.device}: {flag.message}" for flag in result.flags]
        return "\n".join(lines) + "\n"
    result = results[0]
    lines = [
        f"## {result.policy} on {result.device}, {result.precision if result.budget else 'published'}",
        "",
        *_markdown_table(*stage_table(result)),
        "",
    ]
    if result.overlay:
        lines += [*_markdown_table(*overlay_table(result)), ""]
    for title, header, rows in operator_tables(result) if explain else ():
        lines += [f"### {title}", "", *_markdown_table(header, rows), ""]
    lines += [f"- {text}" for _, text in sentences(result)]
    lines += ["", *(f"- {text}" for text in advice_lines(result))]
    return "\n".join(lines).rstrip() + "\n"


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _size(value: float) -> str:
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    head = [f"| {' | '.join(header)} |", "|" + "|".join("---" for _ in header) + "|"]
    return [*head, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)]


def _console():
    from rich.console import Console

    return Console()


def _print_table(console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    widest = [max(len(cell) for cell in column) for column in zip(header, *rows)]
    roomy = sum(widest) + 3 * len(widest) <= console.width
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, int(roomy)), show_edge=False)
    words = {"stage", "bound", "policy", "device", "mode", "operator"}
    for name in header:
        table.add_column(name, justify="left" if name in words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == "total" else None)
    console.print(table)
