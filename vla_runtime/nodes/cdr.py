"""The parts of OMG's CDR that our messages begin with (little endian, XCDR1: what every RMW of ROS 2 gives and takes).

Every number is aligned to its own size, counted from the end of the four bytes of encapsulation.
"""

import struct

from vla_runtime.nodes.clock import NANO

LITTLE_ENDIAN = b"\x00\x01\x00\x00"
_MOST_NAMES = 1000
_REMEMBERED = 64

_known_names: dict[bytes, tuple[str, ...]] = {}


def body_of(data: bytes) -> memoryview:
    """What follows the encapsulation. Raises ValueError unless it is little-endian CDR."""
    if data[:2] != LITTLE_ENDIAN[:2]:
        raise ValueError("not little-endian CDR")
    return memoryview(data)[len(LITTLE_ENDIAN) :]


def get_header(body: memoryview) -> tuple[int, str, int]:
    """A std_msgs/Header at the beginning: (stamp in nanoseconds, frame_id, where it ends)."""
    sec, nanosec = struct.unpack_from("<iI", body, 0)
    frame_id, at = get_text(body, 8)
    return sec * NANO + nanosec, frame_id, at


def get_text(body: memoryview, at: int) -> tuple[str, int]:
    """A string whose length stands at ``at`` (aligned): (text, where it ends). Raises ValueError, struct.error."""
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if length == 0 or end > len(body):
        raise ValueError("a text that is longer than the message")
    return bytes(body[at + 4 : end - 1]).decode(), end


def get_names(body: memoryview, at: int) -> tuple[tuple[str, ...], int]:
    """A sequence of strings: (names, where it ends). Names that were seen before are not decoded again."""
    begin = at = aligned(at, 4)
    (count,) = struct.unpack_from("<I", body, at)
    at += 4
    if count > _MOST_NAMES:
        raise ValueError(f"{count} names")
    spans = []
    for _ in range(count):
        at = aligned(at, 4)
        (length,) = struct.unpack_from("<I", body, at)
        spans.append(at)
        at += 4 + length
        if length == 0 or at > len(body):
            raise ValueError("a name that is longer than the message")
    # Fillers depend on where the sequence begins, so that belongs to the key.
    key = bytes((begin % 8,)) + bytes(body[begin:at])
    names = _known_names.get(key)
    if names is None:
        names = tuple(get_text(body, span)[0] for span in spans)
        if len(_known_names) >= _REMEMBERED:
            _known_names.clear()
        _known_names[key] = names
    return names, at


def put_text(into: bytearray, text: str) -> None:
    """Write a string (the caller has aligned to 4)."""
    encoded = text.encode() + b"\x00"
    into += struct.pack("<I", len(encoded)) + encoded


def aligned(at: int, size: int) -> int:
    """The first multiple of ``size`` from ``at`` on."""
    return (at + size - 1) // size * size


def align(data: bytearray, size: int) -> None:
    """Fill up to a multiple of ``size``."""
    data += b"\x00" * (aligned(len(data), size) - len(data))
