"""Autoregressive policies of OpenVLA's shape: one action is a few tokens, each a bin of one joint's range.

The prefill (backbone) gives the first token's logits and the keys and values of the prompt in a cache that has room for
the action's tokens. Then `action_decode` runs once for each further token; its new rows are written into the cache
here. The head is sliced to the bins' rows, in rising order of value, so that the largest logit names the bin.
"""

from typing import Any

import numpy as np

from vla_runtime.engines.base import Engine
from vla_runtime.policy.bundle import Bundle
from vla_runtime.policy.errors import BundleError
from vla_runtime.policy.staged import StagedPolicy

DECODE = "action_decode"


class TokenPolicy(StagedPolicy):
    """Greedy decoding of ``horizon`` times width tokens. Implements ``Policy``; the seed changes nothing."""

    needs = ("backbone", DECODE)

    def __init__(self, bundle: Bundle, engines: dict[str, Engine]):
        super().__init__(bundle, engines)
        bins = bundle.policy.sampler.bins
        if bins is None:
            raise BundleError(f"bundle {bundle.path}: family 'tokens' needs sampler.bins")
        edges = np.linspace(-1.0, 1.0, bins)
        centres = (edges[:-1] + edges[1:]) / 2
        # As many bins as edges, one centre fewer: the last bin shares the last centre (OpenVLA's rule).
        self._values = np.append(centres, centres[-1]).astype(np.float32)
        self._count = bundle.policy.horizon * bundle.policy.action.width

    def last_step(self, context: dict[str, Any], commitment: Any, seed: int | None) -> np.ndarray:
        """Decode and turn bins into normalised rows."""
        bins = self.decode(context)
        return self._values[bins].reshape(self.bundle.policy.horizon, self.bundle.policy.action.width)

    def decode(self, context: dict[str, Any]) -> np.ndarray:
        """Return the bins (count,) int64, greedily, from what the backbone gave."""
        xp = self._xp
        keys, values = xp.array(context["context_keys"]), xp.array(context["context_values"])
        room = keys.shape[2] - (self._count - 1)
        logits = context["logits"]
        bins = [int(logits.argmax())]
        for step in range(self._count - 1):
            given = {
                "token": xp.asarray([[bins[-1]]], dtype=xp.int64),
                "step": xp.asarray([step], dtype=xp.int64),
                "context_keys": keys,
                "context_values": values,
                "prefix_mask": context["prefix_mask"],
            }
            made = self.run_stage(DECODE, given)
            keys[:, :, room + step] = made["new_keys"][:, :, 0]
            values[:, :, room + step] = made["new_values"][:, :, 0]
            bins.append(int(made["logits"].argmax()))
        return np.asarray(bins, np.int64)


def make(bundle: Bundle, engines: dict[str, Engine]) -> TokenPolicy:
    """Build the policy of a ``tokens`` bundle."""
    return TokenPolicy(bundle, engines)
