"""The demo's word-level tokenizer."""

from __future__ import annotations

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from vla_runtime.sim.task import COLOURS, PHRASES

VOCABULARY, TOKENS = 64, 16


def build_tokenizer() -> Tokenizer:
    """Build it from the phrasings in training; every other word becomes [UNK], case and punctuation are dropped."""
    words = sorted({word for phrase in PHRASES for word in phrase.replace("{}", "").split()} | set(COLOURS))
    vocabulary = {word: k for k, word in enumerate(["[PAD]", "[UNK]", *words])}
    if len(vocabulary) > VOCABULARY:
        raise ValueError(f"{len(vocabulary)} words, the model's vocabulary has {VOCABULARY}")
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"[^\w\s]"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", length=TOKENS)
    return tokenizer


def encode(tokenizer: Tokenizer, instruction: str) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens (TOKENS,) int64 and mask (TOKENS,) float32; ValueError for an instruction that does not fit."""
    encoding = tokenizer.encode(instruction)
    if len(encoding.ids) > TOKENS:
        raise ValueError(f"{instruction!r} needs {len(encoding.ids)} tokens, the model reads {TOKENS}")
    return np.array(encoding.ids, np.int64), np.array(encoding.attention_mask, np.float32)


def phrase_table(tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens (colours, phrases, TOKENS) and masks of every instruction in training."""
    pairs = [[encode(tokenizer, phrase.format(colour)) for phrase in PHRASES] for colour in COLOURS]
    return np.array([[p[0] for p in row] for row in pairs]), np.array([[p[1] for p in row] for row in pairs])
