"""The ``vla`` command. Each subcommand lives in a module of its own, imported only when it is asked for."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vla_runtime.errors import UsageError, UserError
from vla_runtime.nodes.transport import choose_no_type_lookup

# word: (module with add_arguments(parser) and run(args) -> int, one line for `vla --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("vla_runtime.toolchain.demo.command", "run the simulated robot with the real nodes, and report"),
    "eval": ("vla_runtime.toolchain.evaluate", "closed-loop success of a bundle, on simulated time"),
    "sweep": ("vla_runtime.toolchain.sweep", "K x added delay x blending: find the largest safe K"),
    "monitor": ("vla_runtime.toolchain.monitor.command", "who is in command of the arm, and why, live"),
    "health": ("vla_runtime.toolchain.health_command", "one answer for a health check: is the arm in good hands?"),
    "selftest": ("vla_runtime.toolchain.selftest.command", "is this machine fit to run a policy? one page"),
    "record": ("vla_runtime.toolchain.record", "write a rosbag2 of everything that a decision depended on"),
    "replay": ("vla_runtime.toolchain.replay.command", "run policy and control on a bag, without ROS"),
    "report": ("vla_runtime.toolchain.report.command", "turn a bag into one HTML page"),
    "budget": ("vla_runtime.toolchain.budget.command", "predict the latency of a policy on a computer"),
    "bundle": ("vla_runtime.toolchain.bundle_command", "check a bundle, or show what is in it"),
    "export": ("vla_runtime.toolchain.export.command", "turn a checkpoint into a bundle of ONNX stages"),
    "quantize": ("vla_runtime.toolchain.quantize.command", "make a bundle's backbone INT4 (AWQ)"),
    "build": ("vla_runtime.toolchain.build", "build the engines of a bundle for this device"),
    "parity": ("vla_runtime.toolchain.parity.command", "prove that an engine still does the same thing"),
    "bench policy": ("vla_runtime.toolchain.bench_policy", "time each stage of a bundle"),
    "bench control": ("vla_runtime.toolchain.bench_control", "measure the 50 Hz loop under inference load"),
    "bench faults": ("vla_runtime.toolchain.bench_faults", "throw faults at the control core and count violations"),
    "bench soak": ("vla_runtime.toolchain.bench_soak", "run everything for half an hour and show what grows"),
    "train-demo": ("vla_runtime.toolchain.train_demo.command", "train the demo policy from scratch"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``vla``; return the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    word = _command_word(arguments)
    if word is None:
        _top_parser(arguments).parse_args(arguments)  # prints help, or an error with exit code 2
        return 2
    module_name, summary = COMMANDS[word]
    choose_no_type_lookup(os.environ)  # for commands that speak ROS
    module = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(prog=f"vla {word}", description=_description(module, summary))
    module.add_arguments(parser)
    args = parser.parse_args(arguments[len(word.split()) :])
    report = getattr(args, "json", None)  # a bool where it is only a switch
    try:
        if isinstance(report, (str, Path)):  # now, not after an hour's work
            Path(report).parent.mkdir(parents=True, exist_ok=True)
        return int(module.run(args))
    except UsageError as error:
        parser.print_usage(sys.stderr)
        print(f"vla {word}: {error}", file=sys.stderr)
        return 2
    except UserError as error:
        print(f"vla {word}: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("vla_runtime"):
            raise
        print(
            f"vla {word}: this command needs the Python package '{error.name}', which is not installed. "
            "Install the extra that brings it (see README, 'Extras').",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        print(f"vla {word}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _command_word(arguments: list[str]) -> str | None:
    for length in (2, 1):
        word = " ".join(arguments[:length])
        if len(arguments) >= length and word in COMMANDS:
            return word
    return None


def _top_parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Build the parser that only knows the words; of a family such as ``bench``, its members."""
    family = arguments[0] if arguments and any(word.startswith(arguments[0] + " ") for word in COMMANDS) else ""
    prefix = family + " " if family else ""
    words = {word.removeprefix(prefix): text for word, (_, text) in COMMANDS.items() if word.startswith(prefix)}
    width = max(map(len, words)) + 2
    listing = "\n".join(f"  {word:<{width}}{text}" for word, text in words.items())
    parser = argparse.ArgumentParser(
        prog=f"vla {family}".strip(),
        description="Vision-Language-Action policies on real robots.",
        epilog=f"commands:\n{listing}\n\n'vla {prefix}COMMAND --help' explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"vla {prefix}COMMAND [...]",
    )
    if family:  # it is the first word, and not one to choose
        parser.add_argument("family", help=argparse.SUPPRESS)
    known = sorted({word.split()[0] for word in words})
    parser.add_argument("command", choices=known, metavar="COMMAND", help="one of the commands below")
    return parser


def _description(module, summary: str) -> str:
    return (module.__doc__ or summary).strip().split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
