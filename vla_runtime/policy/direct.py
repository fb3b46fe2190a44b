"""Policies that give a whole chunk at once (ACT). They cannot continue a prefix: the executor blends instead."""

from vla_runtime.engines.base import Engine
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.staged import StagedPolicy


class DirectPolicy(StagedPolicy):
    """Runs all stages once; the stage `action` gives ``actions`` (1, H, width)."""

    needs = ("action",)


def make(bundle: Bundle, engines: dict[str, Engine]) -> DirectPolicy:
    """Build the policy of a ``direct`` bundle."""
    return DirectPolicy(bundle, engines)
