"""One line a moment: who is in command, how fast, how late. A table on a terminal, plain lines in a log."""

import sys
import time
from contextlib import AbstractContextManager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vla_runtime.toolchain.demo.conductor import Glance

COLOURS = {"NOMINAL": "green", "COASTING": "yellow", "FALLBACK": "red", "FAULT": "bold red", "TELEOP": "cyan"}
PLAIN_EVERY_S = 2.0


class LiveView(AbstractContextManager):
    """Shows glances while a demo runs; ``note`` leaves a line behind."""

    def __init__(self, quiet: bool = False):
        self._console = Console(quiet=quiet, stderr=False)
        self._plain = not self._console.is_terminal
        self._live = Live(console=self._console, refresh_per_second=8, transient=True, auto_refresh=False)
        self._last_plain, self._last_shown = 0.0, 0.0

    def __enter__(self) -> "LiveView":
        if not self._plain:
            self._live.start()
        return self

    def __exit__(self, *_exc) -> None:
        if not self._plain:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False)

    def show(self, title: str, glance: Glance) -> None:
        """Show the present; on a terminal in place, else as a line every two seconds."""
        now = time.monotonic()
        if self._plain:
            if now - self._last_plain >= PLAIN_EVERY_S:
                self._last_plain = now
                self._console.print(f"  {title}: {plain(glance)}", highlight=False)
                sys.stdout.flush()
            return
        if now - self._last_shown >= 0.12:
            self._last_shown = now
            self._live.update(table(title, glance), refresh=True)


def plain(glance: Glance) -> str:
    """Return a glance as one line of text."""
    return (f"{glance.state} ({glance.in_command} in command: {glance.cause}), {glance.rate_hz:.1f} Hz, inference p50 "
            f"{glance.latency_p50_ms:.0f} ms p99 {glance.latency_p99_ms:.0f} ms, misses {glance.misses}")  # fmt: skip


def table(title: str, glance: Glance) -> Table:
    """Return a glance as a table of at most 80 columns."""
    grid = Table(title=title, title_justify="left", width=78, show_header=False, pad_edge=False)
    grid.add_column(width=16)
    grid.add_column()
    style = COLOURS.get(glance.state, "white")
    grid.add_row("in command", Text(f"{glance.in_command}  [{glance.state}]", style=style))
    grid.add_row("because", glance.cause)
    grid.add_row("commands", f"{glance.rate_hz:5.1f} Hz at the controller")
    stages = "  ".join(f"{name} {ms:.1f}" for name, ms in (glance.stages_ms or {}).items())
    grid.add_row("inference", f"p50 {glance.latency_p50_ms:.0f} ms  p99 {glance.latency_p99_ms:.0f} ms   ({stages})")
    grid.add_row("deadline misses", glance.misses)
    heights = (glance.robot or {}).get("heights_m", {})
    if heights:
        grid.add_row("cubes lifted", "  ".join(f"{name} {height * 100:.1f} cm" for name, height in heights.items()))
    return grid
