"""What reading a damaged bag raises: a recorder that was killed, a disk that was full, a file that was lost."""

from rosbags.highlevel import AnyReaderError
from rosbags.rosbag2 import ReaderError
from ruamel.yaml.error import YAMLError

UNREADABLE: tuple[type[Exception], ...] = (AnyReaderError, ReaderError, YAMLError, TypeError)
"""Beside OSError and ValueError. TypeError is how rosbags meets an MCAP that ends right after its first eight bytes."""
