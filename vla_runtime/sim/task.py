"""What is asked of the arm in the demo scene, and when it counts as done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COLOURS = ("red", "green", "blue")
PHRASES = (
    "pick up the {} cube",
    "lift the {} cube",
    "grab the {} cube",
    "take the {} block",
    "pick the {} block up",
    "raise the {} cube",
    "get the {} cube",
    "please pick up the {} cube",
)
LIFT_M = 0.05
TIME_LIMIT_S = 8.0
# Seeds at or above this number are for evaluation only; `vla train-demo` never collects from them.
EVALUATION_SEED = 1_000_000


@dataclass(frozen=True)
class Outcome:
    """How an episode stands: ``success`` needs the named cube lifted and no other one."""

    success: bool
    wrong_object: bool


def instruction_for(colour: str, rng: np.random.Generator) -> str:
    """Return one of the phrasings of "pick up the <colour> cube"."""
    return str(PHRASES[int(rng.integers(len(PHRASES)))].format(colour))


def colour_of(instruction: str) -> str:
    """Return the colour an instruction names; ValueError unless it names exactly one that the scene has."""
    words = instruction.lower().replace(".", " ").replace(",", " ").split()
    named = [colour for colour in COLOURS if colour in words]
    if len(named) != 1:
        raise ValueError(f"instruction {instruction!r} must name exactly one of the colours {', '.join(COLOURS)}")
    return named[0]


def judge(rise_m: dict[str, float], colour: str) -> Outcome:
    """Judge by how far (m) each cube is above where it lay; ``colour`` is the one that was asked for."""
    lifted = {name for name, rise in rise_m.items() if rise > LIFT_M}
    wrong = bool(lifted - {colour})
    return Outcome(success=colour in lifted and not wrong, wrong_object=wrong)
