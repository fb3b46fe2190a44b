"""From a policy's shape to its stages: which operators run, and how many times in a row."""

from dataclasses import dataclass

from vla_runtime.toolchain.budget.errors import BudgetError, BudgetUsageError
from vla_runtime.toolchain.budget.operators import Operator, decode, flow_step, gemm, prefill
from vla_runtime.toolchain.budget.policies import PolicyShape

# The canonical names, and what else they are called in bundles, benches and papers
STAGES = ("vision", "prefill", "decode", "action")
ALIASES = {"vlm": "prefill", "backbone": "prefill", "language": "prefill", "reasoning": "decode"}


@dataclass(frozen=True)
class Stage:
    """One part of an inference: its operators run ``passes`` times, one pass after the other.

    ``work`` is what a pass is, for people: "27+24 layers, 256 tokens x 3 images".
    """

    name: str
    operators: tuple[Operator, ...]
    passes: int = 1
    work: str = ""


def canonical(name: str) -> str:
    """Return the canonical name of a stage.

    Raises:
        BudgetUsageError: nobody calls a stage so.
    """
    stage = ALIASES.get(name, name)
    if stage not in STAGES:
        raise BudgetUsageError(f"stage '{name}' is not known; stages are {', '.join((*STAGES, *ALIASES))}")
    return stage


def stages_of(policy: PolicyShape) -> list[Stage]:
    """Return the stages of one inference: vision, prefill, decode (only where the policy reasons), action.

    Raises:
        BudgetError: the policy is a published profile and has no shapes.
    """
    if policy.action is None:
        raise BudgetError(f"{policy.name} is a published stage profile: its operators are not known")
    stages = []
    if policy.vision:
        stages.append(_vision(policy))
    if policy.prefill:
        operators = [operator for block in policy.prefill for operator in prefill(block, 1, policy.prefix_tokens)]
        layers = "+".join(str(block.layers) for block in policy.prefill)
        stages.append(Stage("prefill", tuple(operators), 1, f"{layers} layers, {policy.prefix_tokens} tokens"))
    if policy.reasoning_tokens:
        operators = token_operators(policy, policy.reasoning_tokens, policy.reasoning_vocabulary)
        stages.append(Stage("decode", operators, policy.reasoning_tokens, "one token"))
    stages.append(_action(policy))
    return stages


def token_operators(policy: PolicyShape, generated: int, vocabulary: int) -> tuple[Operator, ...]:
    """Return one token that the language model writes after its prefill."""
    if not policy.prefill:
        raise BudgetError(f"{policy.name} has no language model that could write tokens")
    block = policy.prefill[0]
    return (*decode(block, policy.prefix_tokens, generated), *_head(vocabulary, block.width))


def _vision(policy: PolicyShape) -> Stage:
    operators: list[Operator] = []
    for tower in policy.vision:
        operators += prefill(tower.block, policy.cameras, tower.tokens)
        operators += [
            gemm(linear.name, policy.cameras, linear.outputs, linear.tokens, linear.inputs) for linear in tower.linears
        ]
    layers = "+".join(str(tower.block.layers) for tower in policy.vision)
    tokens = "+".join(str(tower.tokens) for tower in policy.vision)
    return Stage("vision", tuple(operators), 1, f"{layers} layers, {tokens} tokens x {policy.cameras} images")


def _action(policy: PolicyShape) -> Stage:
    head = policy.action
    layers = "+".join(str(group.block.layers) for group in head.layers)
    if head.kind == "tokens":
        operators = [
            operator for group in head.layers for operator in decode(group.block, policy.prefix_tokens, head.tokens)
        ]
        operators += _head(head.vocabulary, head.layers[-1].block.width)
        return Stage("action", tuple(operators), head.tokens, f"{layers} layers, one token")
    tokens = policy.horizon + head.extra_tokens
    operators = [
        operator
        for group in head.layers
        for operator in flow_step(group.block, policy.prefix_tokens, tokens, group.attention, group.context_width)
    ]
    return Stage("action", tuple(operators), head.steps, f"{layers} layers, {tokens} action tokens")


def _head(vocabulary: int, width: int) -> list[Operator]:
    return [gemm("head", 1, vocabulary, 1, width, role="head")] if vocabulary else []
