"""Instructions to tokens, by a tokenizer.json of the `tokenizers` library. Nothing is fetched from a network."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from vla_runtime.policy.bundle_model import InstructionModel
from vla_runtime.policy.errors import BundleError, InstructionError

PAD_NAMES = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")

_SHOWN = 200
"""Characters of an instruction that a refusal repeats: whatever is published ends in a log."""


class InstructionTokenizer:
    """Turns an instruction into the fixed number of tokens that the backbone reads."""

    def __init__(self, path: Path, model: InstructionModel):
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception for malformed files
            raise BundleError(f"{path}: not a tokenizer.json that the tokenizers library reads: {error}") from None
        padding = self._tokenizer.padding
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._model = model
        self._pad_id = padding["pad_id"] if padding else _pad_id(self._tokenizer)
        self._tokens = lru_cache(maxsize=32)(self._encode)

    def encode(self, instruction: str, state: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (tokens (1, max_tokens) int64, mask (1, max_tokens) bool), padded on the right, read-only.

        ``state``: the normalised numbers of a prompt that holds them; without it those that need the most tokens.
        Raises InstructionError when the instruction is empty or needs more tokens than the bundle has: cutting it
        could change which object it names.
        """
        return self._tokens(instruction, self._state_text(state))

    def _state_text(self, state: np.ndarray | None) -> str:
        told = self._model.state
        if told is None:
            return ""
        numbers = np.ones(told.values) if state is None else state[: told.values]
        edges = np.linspace(-1.0, 1.0, told.bins + 1)[:-1]
        return " ".join(str(each) for each in np.digitize(numbers, edges) - 1)

    def _prompt(self, instruction: str, state: str) -> str:
        text = instruction.strip() if self._model.spaces else instruction
        text = text.translate(dict.fromkeys(map(ord, self._model.spaces), " "))
        return self._model.template.replace("{state}", state).replace("{instruction}", text)

    def _encode(self, instruction: str, state: str) -> tuple[np.ndarray, np.ndarray]:
        if not instruction.strip():
            raise InstructionError("the instruction is empty; publish one, or set instruction.default in policy.yaml")
        ids = self._tokenizer.encode(self._prompt(instruction, state)).ids
        size = self._model.max_tokens
        if len(ids) > size:
            raise InstructionError(
                f"the instruction {_shown(instruction)} needs {len(ids)} tokens, this policy reads {size}; shorten it"
            )
        tokens = np.full((1, size), self._pad_id, np.int64)
        tokens[0, : len(ids)] = ids
        mask = np.zeros((1, size), bool)
        mask[0, : len(ids)] = True
        tokens.setflags(write=False)
        mask.setflags(write=False)
        return tokens, mask

    def unknown_words(self, instruction: str) -> list[str]:
        """Return the pieces of ``instruction`` that the tokenizer does not know (empty where it has no such token)."""
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        encoding = self._tokenizer.encode(instruction)
        return [instruction[a:b] for token, (a, b) in zip(encoding.tokens, encoding.offsets) if token == unknown]


def _shown(instruction: str) -> str:
    if len(instruction) <= _SHOWN:
        return repr(instruction)
    return f"{instruction[:_SHOWN]!r}... ({len(instruction)} characters)"


def _pad_id(tokenizer) -> int:
    for name in PAD_NAMES:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return found
    return 0
