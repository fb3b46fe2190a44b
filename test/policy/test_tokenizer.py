import numpy as np
import pytest

from vla_runtime.policy.bundle_model import InstructionModel
from vla_runtime.policy.errors import BundleError, InstructionError
from vla_runtime.policy.tokenizer import InstructionTokenizer
from vla_runtime.toolchain.tiny_bundle import WORDS


def tokenizer(bundle, **fields):
    return InstructionTokenizer(
        bundle / "tokenizer.json", InstructionModel(tokenizer="tokenizer.json", **{"max_tokens": 8, **fields})
    )


def test_tokens_are_padded_and_masked(tiny_bundle):
    tokens, mask = tokenizer(tiny_bundle).encode("Pick up the RED cube")
    assert [WORDS[i] for i in tokens[0]] == ["pick", "up", "the", "red", "cube", "[PAD]", "[PAD]", "[PAD]"]
    assert tokens.dtype == np.int64 and mask.dtype == bool and mask.sum() == 5 and not tokens.flags.writeable


def test_too_long_and_empty_instructions_are_refused(tiny_bundle):
    with pytest.raises(InstructionError, match="9 tokens, this policy reads 8"):
        tokenizer(tiny_bundle).encode("the " * 9)
    with pytest.raises(InstructionError, match="empty"):
        tokenizer(tiny_bundle).encode("  ")


def test_the_refusal_of_a_book_fits_into_a_log(tiny_bundle):
    with pytest.raises(InstructionError, match=r"'\.\.\. \(105000 characters\) needs 25000 tokens") as refusal:
        tokenizer(tiny_bundle).encode("pick up the red cube " * 5000)
    assert len(str(refusal.value)) < 400


def test_template_and_unknown_words(tiny_bundle):
    made = tokenizer(tiny_bundle, template="lift the {instruction}")
    assert [WORDS[i] for i in made.encode("cube")[0][0][:3]] == ["lift", "the", "cube"]
    assert made.unknown_words("pick up the violet cube") == ["violet"]


def test_a_state_is_told_as_bins(tiny_bundle):
    state = {"values": 3, "bins": 4}
    made = tokenizer(tiny_bundle, template="state {state}: {instruction}", state=state)
    assert made._state_text(np.array([-1.01, -1.0, -0.51, 9.0])) == "-1 0 0"
    assert made._state_text(np.array([-0.5, 0.99, 7.0])) == "1 3 3"
    assert made._prompt("put {state} down", "1 3 3") == "state 1 3 3: put {state} down"
    told = tokenizer(tiny_bundle, template="{state} {instruction}", state=state)
    assert told.encode("cube", np.zeros(3))[1].sum() == told.encode("cube")[1].sum() == 4  # three numbers and a word
    with pytest.raises(InstructionError, match="9 tokens, this policy reads 8"):  # whatever the state will be
        told.encode("pick up the red red cube")


def test_characters_that_become_spaces(tiny_bundle):
    made = tokenizer(tiny_bundle, template="{instruction}_\n", spaces="_\n")
    assert made._prompt(" pick_up\nthe_cube ", "") == "pick up the cube_\n"
    assert tokenizer(tiny_bundle)._prompt(" pick_up ", "") == " pick_up "


@pytest.mark.parametrize(
    ("template", "state"),
    [
        ("{instruction}", {"values": 1, "bins": 2}),
        ("{state} {instruction}", None),
        ("{instruction} {state}{state}", None),
    ],
)
def test_template_and_state_belong_together(template, state):
    with pytest.raises(ValueError, match="hold {state} once if state is given"):
        InstructionModel(tokenizer="tokenizer.json", max_tokens=8, template=template, state=state)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="tokenizer.json"):
        tokenizer(tmp_path)
