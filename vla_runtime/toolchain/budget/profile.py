"""Stage profiles: what one inference costs when its parts are known, on average and in the worst case.

A policy that thinks in words before it acts does not cost the same twice. What a control loop must survive is the slow
branch; the mean only says how busy the computer is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_runtime.toolchain.budget.errors import BudgetUsageError, require
from vla_runtime.toolchain.budget.files import Entry


@dataclass(frozen=True)
class LatencyProfile:
    """Stage times of a policy in milliseconds, measured, published or predicted.

    Attributes:
        vision_ms, prefill_ms: paid once in every inference.
        token_ms: each token that the language model writes.
        step_ms: each step (or token) of the action head.
        name: whose profile it is, and where it was taken.
    """

    vision_ms: float
    prefill_ms: float
    token_ms: float
    step_ms: float
    name: str = ""

    def __post_init__(self):
        for field in ("vision_ms", "prefill_ms", "token_ms", "step_ms"):
            value = getattr(self, field)
            require(0 <= value < float("inf"), f"{field} must be a finite time of at least 0 ms, not {value!r}")

    def total_ms(self, reasoning_tokens: int, steps: int, action_ms: float | None = None) -> float:
        """Return the time of one inference; ``action_ms`` replaces ``steps`` x ``step_ms`` where it was measured.

        Raises:
            ValueError: a count is below zero; the text quotes it.
        """
        _count("reasoning tokens", reasoning_tokens)
        _count("action steps", steps)
        if action_ms is not None:
            require(action_ms >= 0, f"the action's time must be at least 0 ms, not {action_ms!r}")
        action = steps * self.step_ms if action_ms is None else action_ms
        return self.vision_ms + self.prefill_ms + reasoning_tokens * self.token_ms + action

    def expected_ms(self, share: float, reasoning_tokens: int, steps: int) -> float:
        """Return the mean time when a ``share`` of the inputs (0 to 1) makes the policy reason first.

        Raises:
            ValueError: the share is outside [0, 1] or a count is below zero; the text quotes the value.
        """
        require(0 <= share <= 1, f"the share of inputs that reason must be within [0, 1], not {share!r}")
        slow = self.total_ms(reasoning_tokens, steps)
        return share * slow + (1 - share) * self.total_ms(0, steps)

    def worst_ms(self, reasoning_tokens: int, steps: int) -> float:
        """Return the time of the slow branch, the one a deadline must hold on, however rare it is."""
        return self.total_ms(reasoning_tokens, steps)


def memory_bound_ms_per_token(parameters: float, bytes_per_parameter: float, bandwidth_gb_s: float) -> float:
    """Return the least time of one token: every weight crosses the memory bus once. 1 GB/s is 1e9 bytes a second.

    For example 7e9 parameters at 1000 GB/s: 14 ms in bf16 (2 bytes), 7 ms in int8 (1), 3.5 ms in 4 bits (0.5).

    Raises:
        ValueError: the bandwidth is not positive, or another number is negative; the text quotes it.
    """
    require(bandwidth_gb_s > 0, f"the bandwidth must be above 0 GB/s, not {bandwidth_gb_s!r}")
    require(parameters >= 0, f"the number of parameters must be at least 0, not {parameters!r}")
    require(bytes_per_parameter >= 0, f"the bytes per parameter must be at least 0, not {bytes_per_parameter!r}")
    return parameters * bytes_per_parameter / (bandwidth_gb_s * 1e9) * 1e3


@dataclass(frozen=True)
class PublishedProfile:
    """A stage profile that somebody published, with the counts it was published for."""

    device: str
    profile: LatencyProfile
    reasoning_tokens: int
    steps: int
    trajectory_tokens: int = 0
    trajectory_ms: float = 0.0


def published_profile(where: str, content: Mapping[str, Any]) -> PublishedProfile:
    """Read the ``published`` part of a policy's entry; ``where`` names it in complaints."""
    times = ("vision_ms", "prefill_ms", "token_ms", "step_ms")
    counts = ("reasoning_tokens", "steps", "trajectory_tokens")
    entry = Entry(where, content, {"device", *times, *counts, "trajectory_ms"})
    device = entry.text("device")
    return PublishedProfile(
        device,
        LatencyProfile(*(entry.number(key) for key in times), name=device),
        *(entry.count(key, 0) for key in counts),
        entry.number("trajectory_ms", 0.0),
    )


def _count(what: str, value: int) -> None:
    if isinstance(value, bool) or not float(value).is_integer() or value < 0:
        raise BudgetUsageError(f"the number of {what} must be a whole number of at least 0, not {value!r}")
