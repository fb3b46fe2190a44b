"""What reading a damaged bag raises: a recorder that was killed, a disk that was full, a file that was lost."""

from pathlib import Path

from rosbags.highlevel import AnyReaderError
from rosbags.rosbag2 import ReaderError
from ruamel.yaml.error import YAMLError

from vla_runtime.errors import UserError

UNREADABLE: tuple[type[Exception], ...] = (AnyReaderError, ReaderError, YAMLError, TypeError)
"""Beside OSError and ValueError. TypeError is how rosbags meets an MCAP that ends right after its first eight bytes."""


def expect_bag(bag: Path) -> None:
    """Raise UserError if ``bag`` is no rosbag2 folder: it names the bag that is one folder deeper, as the demo's is."""
    if (bag / "metadata.yaml").is_file():
        return
    deeper = bag / "bag"
    hint = f"did you mean {deeper}?" if (deeper / "metadata.yaml").is_file() else "was the recorder ended with Ctrl-C?"
    raise UserError(f"'{bag}' is not a bag: there is no metadata.yaml in it ({hint})")
