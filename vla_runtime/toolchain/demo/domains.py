"""A DDS domain for each program that runs nodes of its own: drawn at random, and held by a lock on a file.

Listening alone does not keep two programs that start at once out of the same domain: neither has said anything yet.
The lock is on this machine (these programs discover on localhost alone), and ends with the process that took it.
"""

import contextlib
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vla_runtime.errors import UserError

# Linux hands out ephemeral ports from 32768 on; DDS domains above 101 would have their ports there.
HIGHEST_DOMAIN = 101
DOMAINS = range(20, 100)  # those below are what people choose by hand
TRIES = 10


@contextlib.contextmanager
def held_domain(is_busy: Callable[[int], bool] = lambda domain: False) -> Iterator[int]:
    """Hold a domain that nobody else holds and that ``is_busy`` does not know to be in use; gives its number.

    Raises:
        UserError: all are held, or ``is_busy`` said so of ten of them.
    """
    busy: list[int] = []
    for domain in random.sample(DOMAINS, len(DOMAINS)):
        lock = _lock(domain)
        if lock is None:
            continue
        try:
            if not is_busy(domain):
                yield domain
                return
        finally:
            os.close(lock)
        busy.append(domain)
        if len(busy) == TRIES:
            break
    raise UserError(
        f"no DDS domain of {DOMAINS.start} to {DOMAINS.stop - 1} is free: nodes in {busy or 'none'}, the others "
        "are held by programs of this machine"
    )


@contextlib.contextmanager
def held_if_free(domain: int) -> Iterator[int]:
    """Hold a domain that somebody chose, unless it is held already: the one who chose it may be the holder."""
    lock = _lock(domain)
    try:
        yield domain
    finally:
        if lock is not None:
            os.close(lock)


def domain_is_busy(domain: int, listen_s: float = 0.6) -> bool:
    """Whether a node of this runtime is already in the domain (it would drive the same arm)."""
    import rclpy

    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    try:
        node = rclpy.create_node("vla_demo_scout", context=context)
        end = time.monotonic() + listen_s
        names: set[str] = set()
        while time.monotonic() < end:
            names |= set(node.get_node_names())
            time.sleep(0.05)
        node.destroy_node()
        return bool(names & {"policy", "executor", "watchdog", "sim_robot"})
    finally:
        context.try_shutdown()


def _lock(domain: int) -> int | None:
    """Return a descriptor that holds the domain's lock; None when another one has it."""
    folder = Path(tempfile.gettempdir()) / "vla_runtime_domains"
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)  # every user of the machine
    path = folder / str(domain)
    if not path.exists():
        path.touch()
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
