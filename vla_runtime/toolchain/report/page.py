"""The page itself: sections in HTML, pictures and charts inside it. Pure: a RunLog in, text out."""

import base64
import html
import io
from collections.abc import Iterable, Mapping

import numpy as np
from PIL import Image

from vla_runtime.toolchain.demo.figures import inference_ms, stream_figures, time_in_state, transitions
from vla_runtime.toolchain.report import charts
from vla_runtime.toolchain.run_log import RunLog

SHOWN_JOINTS = 8
"""The joints that moved most are shown; the others are folded away."""
PICTURES = 8
PICTURE_WIDTH = 240

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 1080px; padding: 12px; color: #1b1b1b; }
h1 { font-size: 1.3rem; margin: .2rem 0; }
h2 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; border-bottom: 1px solid #ddd; }
p, li, td:last-child { overflow-wrap: anywhere; }
.verdict { padding: .5rem .7rem; border-left: 5px solid #2e7d32; background: #f2f7f2; }
.verdict.bad { border-color: #c62828; background: #fbf1f1; }
.bar { display: flex; height: 26px; border-radius: 4px; overflow: hidden; margin: .4rem 0; background: #eee; }
.bar span { display: block; min-width: 1px; }
.legend span { display: inline-block; margin-right: .8rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; border-radius: 2px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 6px; }
.numbers div { background: #f6f6f6; border-radius: 4px; padding: 4px 8px; }
.numbers b { display: block; font-size: 1.1rem; }
.numbers small { color: #555; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); gap: 8px; }
.charts svg, .charts img { width: 100%; height: auto; }
.strip { display: flex; gap: 6px; overflow-x: auto; padding-bottom: 4px; }
.strip figure { margin: 0; flex: 0 0 auto; }
.strip img { height: 130px; display: block; border-radius: 3px; }
figcaption { font-size: .75rem; color: #555; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
td, th { text-align: left; padding: 2px 8px 2px 0; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
tr + tr td { border-top: 1px solid #eee; }
"""


def page(run: RunLog, title: str) -> str:
    """Return the whole page."""
    sections = [
        _verdict(run),
        _timeline(run),
        _numbers(run),
        _pictures(run),
        _joints(run),
        _latency(run),
        _stream(run),
        _misses(run),
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body></html>\n"
    )


def _verdict(run: RunLog) -> str:
    spent = time_in_state(run)
    total = sum(spent.values())
    if not total:
        return (
            "<p class='verdict bad'>The bag has no state of a watchdog: nothing can be said about who had the arm.</p>"
        )
    driven = spent.get("NOMINAL", 0.0) + spent.get("COASTING", 0.0)
    bad = spent.get("FAULT", 0.0) + spent.get("FALLBACK", 0.0)
    text = f"{run.duration:.1f} s, of which the policy had the arm for {100 * driven / total:.1f} %"
    if bad:
        text += f", the fallback for {bad:.2f} s"
    what = run.instruction[-1][1] if run.instruction else ""
    quote = f"<br>“{html.escape(what)}”" if what else ""
    return f"<p class='verdict{' bad' if bad else ''}'>{text}.{quote}</p>"


def _timeline(run: RunLog) -> str:
    changes = transitions(run)
    if not changes:
        return ""
    ends = [t for t, _, _ in changes[1:]] + [run.duration]
    spans = "".join(
        f"<span style='flex:{max(end - t, 1e-3):.4f};background:{charts.STATE_COLOURS.get(state, '#999')}'"
        f" title='{html.escape(f'{t:.2f} s {state}: {cause}', quote=True)}'></span>"
        for (t, state, cause), end in zip(changes, ends)
    )
    used = dict.fromkeys(state for _, state, _ in changes)
    legend = "".join(f"<span><i style='background:{charts.STATE_COLOURS.get(s, '#999')}'></i>{s}</span>" for s in used)
    rows = _table(
        ("at", "state", "for", "why"),
        ((f"{t:.2f} s", state, f"{end - t:.2f} s", cause) for (t, state, cause), end in zip(changes, ends)),
        numbers=(0, 2),
    )
    bar = f"<div class='bar'>{spans}</div><div class='legend'>{legend}</div>"
    return f"<h2>Who had the arm</h2>{bar}{_folded(rows, changes)}"


def _folded(rows: str, items: list) -> str:
    if len(items) <= 12:
        return rows
    return f"<details><summary>{len(items)} changes</summary>{rows}</details>"


def _numbers(run: RunLog) -> str:
    stream, jumps = stream_figures(run.commands), charts.seam_sizes(run.commands)
    latency = [1e3 * (chunk.received - chunk.stamp) for chunk in run.chunks]
    last = {**(run.watchdog[-1].values if run.watchdog else {}), **(run.executor[-1].values if run.executor else {})}
    figures = {
        "commands": f"{len(run.commands)}",
        "command rate": f"{stream['command_rate_hz']:.2f} Hz",
        "|period − 20 ms|, p99": f"{stream['period_error_p99_ms']:.2f} ms",
        "largest gap": f"{stream['max_gap_ms']:.1f} ms",
        "plans asked / answered": f"{len(run.requests)} / {len(run.chunks)}",
        "seams": f"{len(charts.seams(run.commands))}",
        "largest step at a seam": f"{jumps.max() * 1e3:.2f} mrad" if len(jumps) else "none",
        "observation → plan, p50 / p99": f"{np.percentile(latency, 50):.0f} / {np.percentile(latency, 99):.0f} ms"
        if latency
        else "none",
    }
    if last.get("k"):
        figures["K (safe range)"] = f"{last['k']} ({last.get('k_range', '?')})"
    cells = "".join(f"<div><small>{html.escape(k)}</small><b>{html.escape(v)}</b></div>" for k, v in figures.items())
    return f"<h2>Figures</h2><div class='numbers'>{cells}</div>"


def _pictures(run: RunLog) -> str:
    strips = []
    for topic, shots in sorted(run.images.items()):
        chosen = [shots[round(i)] for i in np.linspace(0, len(shots) - 1, min(PICTURES, len(shots)))]
        figures = "".join(
            f"<figure><img alt='' src='{_jpeg(picture)}'><figcaption>{t:.1f} s</figcaption></figure>"
            for t, picture in chosen
        )
        strips.append(f"<p><small>{html.escape(topic)}</small></p><div class='strip'>{figures}</div>")
    return f"<h2>What the cameras saw</h2>{''.join(strips)}" if strips else ""


def _jpeg(picture: np.ndarray) -> str:
    image = Image.fromarray(picture)
    if image.width > PICTURE_WIDTH:
        image = image.resize((PICTURE_WIDTH, round(image.height * PICTURE_WIDTH / image.width)))
    data = io.BytesIO()
    image.save(data, "JPEG", quality=70)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()


def _joints(run: RunLog) -> str:
    if not run.commands:
        return ""
    names = run.commands[0].joint_names
    travel = {name: np.ptp(charts.command_line(name, run.commands)[1]) for name in names}
    order = sorted(names, key=lambda name: (-travel[name], names.index(name)))
    first = sorted(order[:SHOWN_JOINTS], key=names.index)
    rest = sorted(order[SHOWN_JOINTS:], key=names.index)

    def drawn(joints: list[str]) -> str:
        return "".join(
            f"<div>{charts.joint_chart(joint, run.commands, run.chunks, run.measured)}</div>" for joint in joints
        )

    text = (
        "<h2>Joints</h2><p><small>Dark: command. Orange: measured. Pale: the plans as they arrived. Upright lines: "
        "seams, where one plan took over from another.</small></p>"
        f"<div class='charts'>{drawn(first)}</div>"
    )
    if rest:
        more = f"<summary>{len(rest)} joints that moved less</summary><div class='charts'>{drawn(rest)}</div>"
        text += f"<details>{more}</details>"
    return text


def _latency(run: RunLog) -> str:
    if not run.latency:
        ages = [1e3 * (chunk.received - chunk.stamp) for chunk in run.chunks]
        if len(ages) < 2:
            return ""
        chart = charts.histogram(ages, "observation to answer, ms")
        return f"<h2>Latency</h2><div class='charts'><div>{chart}</div></div>"
    stages = dict.fromkeys(stage for _, row in run.latency for stage in row)
    rows = []
    for stage in stages:
        values = [row[stage] for _, row in run.latency if stage in row]
        p50, p95, p99 = np.percentile(values, (50, 95, 99))
        rows.append((stage, *(f"{value:.1f}" for value in (p50, p95, p99, max(values)))))
    totals = [row["total"] for _, row in run.latency if "total" in row]
    pictures = f"<div>{charts.latency_chart(run.latency)}</div>"
    if totals:
        pictures += f"<div>{charts.histogram(totals, 'request to answer, ms')}</div>"
    table = _table(("stage, ms", "p50", "p95", "p99", "max"), rows, numbers=(1, 2, 3, 4))
    note = f"<p><small>median of all stages together {inference_ms(run)['p50']:.0f} ms</small></p>"
    return f"<h2>Latency</h2><div class='charts'>{pictures}</div>{table}{note}"


def _stream(run: RunLog) -> str:
    if len(run.commands) < 3:
        return ""
    chart = charts.period_chart(run.commands)
    return f"<h2>Time between commands</h2><div class='charts'><div>{chart}</div></div>"


def _misses(run: RunLog) -> str:
    rows: list[tuple[str, str, str]] = []
    for who, statuses in (("watchdog", run.watchdog), ("executor", run.executor)):
        last: Mapping[str, str] = statuses[-1].values if statuses else {}
        rows += [
            (who, key.replace(".", ": ", 1), value)
            for key, value in last.items()
            if key.startswith(("missed.", "refused.", "silences.")) and value not in ("", "0")
        ]
    table = _table(("counted by", "what", "times"), rows, numbers=(2,)) if rows else "<p>None.</p>"
    return f"<h2>Misses and refusals</h2>{table}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: tuple[int, ...] = ()) -> str:
    def cells(values: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in numbers else ''}>{html.escape(str(value))}</{tag}>"
            for i, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{cells(head, 'th')}</tr>{body}</table>"
