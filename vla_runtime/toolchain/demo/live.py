"""The demo's screen: the monitor's board on a terminal, plain lines in a log."""

import time
from contextlib import AbstractContextManager

from rich.console import Console
from rich.live import Live

from vla_runtime.toolchain.monitor.board import View
from vla_runtime.toolchain.monitor.render import WIDTH, screen

REFRESH_S, PLAIN_EVERY_S = 0.25, 2.0


class LiveView(AbstractContextManager):
    """Shows views of the board while a demo runs; ``note`` leaves a line behind."""

    def __init__(self, quiet: bool = False):
        self._console = Console(quiet=quiet)
        self._plain = not self._console.is_terminal
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._shown = float("-inf")

    def __enter__(self) -> "LiveView":
        if not self._plain:
            self._live.start()
        return self

    def __exit__(self, *_exc) -> None:
        if not self._plain:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, title: str, look) -> None:
        """Show the present, now and then; ``look() -> View``."""
        now = time.monotonic()
        if now - self._shown < (PLAIN_EVERY_S if self._plain else REFRESH_S):
            return
        self._shown = now
        if self._plain:
            self.note(f"  {title}: {in_one_line(look())}")
        else:
            self._live.update(screen(look(), title, min(self._console.width, WIDTH)), refresh=True)


def in_one_line(view: View) -> str:
    """Return a view as one line of text."""
    total = next((stage for stage in view.latency if stage.stage == "total"), None)
    inference = f", inference p50 {total.p50:.0f} ms, p99 {total.p99:.0f} ms" if total else ""
    if not view.heard:
        return "nothing heard yet"
    cause = f": {view.cause}" if view.cause else ""
    return f"{view.state} ({view.in_command} in command{cause}), {view.stream.rate_hz:.1f} Hz{inference}"
