"""Policies as the model sees them: which blocks run on how many tokens, how often, and for how long a chunk.

The numbers live in ``data/policies/*.yaml`` (add your own with ``--data``); each entry names its source, and a
number that nobody has published is marked as an estimate there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vla_runtime.toolchain.budget.errors import BudgetError, BudgetUsageError
from vla_runtime.toolchain.budget.files import Entry, data_files, merged
from vla_runtime.toolchain.budget.operators import Block
from vla_runtime.toolchain.budget.profile import PublishedProfile, published_profile

ATTENTION = ("joint", "shared", "cross", "self")
_BLOCK_KEYS = {"layers", "width", "ff_width", "heads", "kv_heads", "head_dim", "ff_inputs"}
_POLICY_KEYS = {"title", "source", "precision", "cameras", "image_tokens", "language_tokens", "horizon", "step_s",
                "vision", "prefill", "reasoning", "action", "published"}  # fmt: skip


@dataclass(frozen=True)
class Linear:
    """A single projection beside a block, for each image: ``tokens`` rows, ``inputs`` to ``outputs`` features."""

    name: str
    inputs: int
    outputs: int
    tokens: int


@dataclass(frozen=True)
class Tower:
    """A vision encoder over one image of ``tokens`` patches; all cameras go in as one batch."""

    block: Block
    tokens: int
    linears: tuple[Linear, ...] = ()


@dataclass(frozen=True)
class Layers:
    """A group of the action head's layers; see ``operators.flow_step`` for the kinds of attention."""

    block: Block
    attention: str = "shared"
    context_width: int = 0


@dataclass(frozen=True)
class ActionHead:
    """``kind`` flow: ``steps`` passes over the whole chunk (and ``extra_tokens``); tokens: ``tokens`` decode steps."""

    kind: str
    layers: tuple[Layers, ...]
    steps: int = 0
    extra_tokens: int = 0
    tokens: int = 0
    vocabulary: int = 0


@dataclass(frozen=True)
class PolicyShape:
    """Everything that the cost of one inference depends on.

    Attributes:
        cameras, image_tokens, language_tokens: the prefill is cameras x image_tokens + language_tokens long.
        horizon: actions in a chunk. step_s: seconds from one action of the chunk to the next.
        reasoning_tokens: tokens that the language model writes before the action (0: it does not).
        reasoning_vocabulary: rows of the head that each of them needs.
        published: a stage profile instead of shapes; then ``action`` is None and the towers are empty.
    """

    name: str
    title: str
    source: str
    precision: str
    horizon: int
    step_s: float
    cameras: int = 0
    image_tokens: int = 0
    language_tokens: int = 0
    vision: tuple[Tower, ...] = ()
    prefill: tuple[Block, ...] = ()
    action: ActionHead | None = None
    reasoning_tokens: int = 0
    reasoning_vocabulary: int = 0
    published: PublishedProfile | None = None

    @property
    def prefix_tokens(self) -> int:
        """Length of the language model's prefill."""
        return self.cameras * self.image_tokens + self.language_tokens

    def changed(self, **changes: int | None) -> "PolicyShape":
        """Return the policy with some numbers replaced; a None keeps the old one.

        Names: cameras, image_tokens, language_tokens, horizon, reasoning_tokens, steps, tokens, vocabulary.

        Raises:
            BudgetError: a number is negative, or the policy has no such part.
        """
        given = {key: value for key, value in changes.items() if value is not None}
        for key, value in given.items():
            if value < 0 or (key in ("cameras", "horizon", "steps", "tokens") and value == 0):
                raise BudgetUsageError(
                    f"{self.name}: {key} must be {'positive' if value == 0 else 'at least 0'}, not {value}"
                )
        if self.published and given:
            raise BudgetUsageError(
                f"{self.name} is a published stage profile, not shapes: {sorted(given)[0]} cannot be changed"
            )
        head = {key: given.pop(key) for key in ("steps", "tokens", "vocabulary") if key in given}
        if head and self.action:
            kind = self.action.kind
            absent = [key for key in head if key not in ({"steps"} if kind == "flow" else {"tokens", "vocabulary"})]
            if absent:
                raise BudgetUsageError(f"{self.name} has no action {absent[0]}: its action head works by {kind}")
            given["action"] = replace(self.action, **head)
        return replace(self, **given)


def load_policies(extra: Iterable[Path] = ()) -> dict[str, PolicyShape]:
    """Read every policy of the data files.

    Raises:
        BudgetError: a file is malformed; the text names the file, the entry and the key.
    """
    files = data_files(extra)
    blocks = {name: _block(name, content, path) for name, (content, path) in merged("blocks", files).items()}
    return {
        name: _policy(name, Entry(f"{path}: policies.{name}", content, _POLICY_KEYS), blocks)
        for name, (content, path) in merged("policies", files).items()
    }


def _block(name: str, content: Mapping[str, Any], path: Path) -> Block:
    entry = Entry(f"{path}: blocks.{name}", content, _BLOCK_KEYS)
    return Block(name, **{key: entry.count(key, least=1) for key in sorted(_BLOCK_KEYS)})


def _policy(name: str, entry: Entry, blocks: Mapping[str, Block]) -> PolicyShape:
    common = {
        "name": name,
        "title": entry.text("title", name),
        "source": entry.text("source"),
        "precision": entry.text("precision", "bf16"),
        "horizon": entry.count("horizon", least=1),
        "step_s": entry.number("step_s", above=True),
    }
    if entry.content.get("published"):
        return PolicyShape(
            **common, published=published_profile(f"{entry.where}.published", entry.mapping("published"))
        )
    reasoning = Entry(f"{entry.where}.reasoning", entry.mapping("reasoning"), {"tokens", "vocabulary"})
    return PolicyShape(
        **common,
        cameras=entry.count("cameras", least=1),
        image_tokens=entry.count("image_tokens"),
        language_tokens=entry.count("language_tokens"),
        vision=tuple(_tower(item, blocks) for item in entry.entries("vision", {"block", "tokens", "linears"})),
        prefill=tuple(_named(item, blocks) for item in entry.entries("prefill", {"block", "layers"})),
        reasoning_tokens=reasoning.count("tokens", 0),
        reasoning_vocabulary=reasoning.count("vocabulary", 0),
        action=_action(entry, blocks),
    )


def _action(entry: Entry, blocks: Mapping[str, Block]) -> ActionHead:
    known = {"kind", "layers", "steps", "extra_tokens", "tokens", "vocabulary"}
    head = Entry(f"{entry.where}.action", entry.mapping("action"), known)
    kind = head.choice("kind", ("flow", "tokens"))
    layers = []
    for item in head.entries("layers", {"block", "layers", "attention", "context_width"}):
        attention = item.choice("attention", ATTENTION, "shared")
        layers.append(
            Layers(_named(item, blocks), attention, item.count("context_width", 0, least=attention == "cross"))
        )
    if not layers:
        raise BudgetError(f"{head.where}: 'layers' must name at least one block")
    return ActionHead(
        kind=kind,
        layers=tuple(layers),
        steps=head.count("steps", None if kind == "flow" else 0, least=int(kind == "flow")),
        extra_tokens=head.count("extra_tokens", 0),
        tokens=head.count("tokens", None if kind == "tokens" else 0, least=int(kind == "tokens")),
        vocabulary=head.count("vocabulary", 0),
    )


def _named(item: Entry, blocks: Mapping[str, Block]) -> Block:
    name = item.choice("block", blocks)
    return replace(blocks[name], layers=item.count("layers", blocks[name].layers, least=1))


def _tower(item: Entry, blocks: Mapping[str, Block]) -> Tower:
    known = {"name", "inputs", "outputs", "tokens"}
    linears = tuple(
        Linear(linear.text("name"), *(linear.count(key, least=1) for key in ("inputs", "outputs", "tokens")))
        for linear in item.entries("linears", known)
    )
    return Tower(_named(item, blocks), item.count("tokens", least=1), linears)
