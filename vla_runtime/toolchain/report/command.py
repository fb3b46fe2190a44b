"""Turn a bag into one self-contained HTML page: who had the arm, plans and seams, latency, misses, pictures."""

import argparse
from pathlib import Path

from vla_runtime.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``vla report``."""
    parser.add_argument("bag", type=Path, help="the rosbag2 folder (vla record, vla replay --out, vla demo)")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the page (default: <bag>/report.html)")
    parser.add_argument("--title", default="", help="headline (default: the bag's name)")


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    out = args.out or args.bag / "report.html"
    text = write_report(args.bag, out, args.title)
    print(f"{out} ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def write_report(bag: Path, out: Path, title: str = "") -> str:
    """Write the page about a bag to ``out`` and return its text. Raises UserError for what is not a bag."""
    from vla_runtime.toolchain.report.page import page
    from vla_runtime.toolchain.run_log import read_run

    text = page(read_run(bag), title or bag.resolve().name)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the report: {error}") from error
    return text
