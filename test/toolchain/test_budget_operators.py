"""Operators: counts by hand, and what must hold for every shape."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.toolchain.budget import load_devices, precision
from vla_runtime.toolchain.budget.operators import Block, attention, decode, flow_step, gemm, prefill

BLOCK = Block("toy", layers=3, width=8, ff_width=32, heads=4, kv_heads=2, head_dim=6, ff_inputs=2)
blocks = st.builds(
    lambda layers, width, ff, kv, group, dim, gates: Block("b", layers, width, ff, kv * group, kv, dim, gates),
    *[st.integers(1, n) for n in (4, 64, 64, 4, 4, 16, 2)],
)


def macs(operators) -> int:
    return sum(operator.macs * operator.repeat for operator in operators)


def weights(operators) -> int:
    return sum(operator.elements("weight") * operator.repeat for operator in operators)


def test_gemm_by_hand():
    operator = gemm("g", 2, 5, 3, 7)
    assert operator.macs == 2 * 5 * 3 * 7
    assert operator.elements("weight") == 5 * 7
    assert operator.elements("activation") == 2 * 7 * 3 + 2 * 5 * 3


def test_attention_by_hand():
    logit = attention("l", BLOCK, 2, 5, 9, scores_first=True)
    assert logit.macs == 2 * 4 * 5 * 9 * 6
    assert logit.elements("kv") == 2 * 2 * 9 * 6
    assert sorted(tensor.on_chip for tensor in logit.tensors) == [False, False, True]


def test_a_chunk_of_one_token_has_no_second_projection():
    names = [operator.name for operator in flow_step(BLOCK, 10, 1, "joint")]
    assert "qkv self" not in names
    assert "qkv self" in [operator.name for operator in flow_step(BLOCK, 10, 2, "joint")]


@settings(deadline=None)
@given(blocks, st.integers(1, 4), st.integers(1, 50))
def test_prefill_reads_every_weight_once_and_multiplies_it_once_a_token(block, batch, tokens):
    operators = prefill(block, batch, tokens)
    assert weights(operators) == block.parameters
    attention_macs = 2 * block.layers * batch * block.heads * tokens * tokens * block.head_dim
    assert macs(operators) == batch * tokens * block.parameters + attention_macs


@settings(deadline=None)
@given(blocks, st.integers(0, 50), st.integers(0, 20))
def test_a_decoded_token_reads_every_weight_and_the_whole_cache(block, context, generated):
    operators = decode(block, context, generated)
    assert weights(operators) == block.parameters
    kv = sum(operator.elements("kv") * operator.repeat for operator in operators)
    assert kv == 2 * block.layers * (context + generated) * block.kv_heads * block.head_dim


@settings(deadline=None)
@given(blocks, st.integers(1, 50), st.integers(2, 50))
def test_one_projection_reads_every_weight_once_in_a_flow_step(block, context, tokens):
    assert weights(flow_step(block, context, tokens, "shared")) == block.parameters
    assert weights(flow_step(block, context, tokens, "self")) == block.parameters
    twice = block.layers * block.width * block.qkv_width
    assert weights(flow_step(block, context, tokens, "joint")) == block.parameters + twice


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_more_work_never_takes_less_time(batch, rows, columns, inner):
    device = load_devices()["agx-orin-64"]
    mode = precision("fp16")
    before = device.time(gemm("g", batch, rows, columns, inner), mode).seconds
    for bigger in ((batch + 1, rows, columns, inner), (batch, rows + 1, columns, inner),
                   (batch, rows, columns + 1, inner), (batch, rows, columns, inner + 1)):  # fmt: skip
        assert device.time(gemm("g", *bigger), mode).seconds >= before


def test_an_operator_without_arithmetic_takes_no_time_on_a_data_sheet():
    operator = gemm("empty", 1, 0, 5, 7)
    assert load_devices()["thor"].time(operator, precision("fp16")).seconds == 0
