"""Number formats of an inference: what a weight, an activation and a cached key weigh, and which arithmetic runs.

A mode is more than one number of bits. Weight-only INT4 (``w4a16``) reads 4.16-bit weights and then computes in
16-bit floats: it helps where reading weights is the bound and nowhere else. Sources: VLA-Perf (arXiv 2602.18397) for
the modes in which everything has one width; AWQ (arXiv 2306.00978) for the layout of grouped 4-bit weights.
"""

from dataclasses import dataclass

from vla_runtime.toolchain.budget.errors import BudgetUsageError

AWQ_GROUP = 128
# 4 bits, and for each group of 128 weights one fp16 scale and one 4-bit zero point: 4.15625 bits
AWQ_BITS = 4 + (16 + 4) / AWQ_GROUP


@dataclass(frozen=True)
class Precision:
    """Bits per element by what the tensor is, and the column of the device's table that does the arithmetic.

    Attributes:
        name: the mode's name on the command line.
        weight_bits: layer weights, with their scales.
        head_bits: weights of the vocabulary head, which weight-only quantisation leaves in 16 bits.
        activation_bits: inputs and outputs of a GEMM.
        attention_bits: queries, scores, and cached keys and values.
        compute: number format of the GEMMs' arithmetic (``fp32``, ``fp16``, ``fp8``, ``int8``, ``int4``).
        attention_compute: number format of the attention's two matrix products.
        meaning: one line for people.
    """

    name: str
    weight_bits: float
    head_bits: float
    activation_bits: float
    attention_bits: float
    compute: str
    attention_compute: str
    meaning: str

    def bits(self, role: str, attention: bool) -> float:
        """Return the bits per element of a tensor: ``role`` is ``weight``, ``head``, ``kv`` or ``activation``."""
        if role == "weight":
            return self.weight_bits
        if role == "head":
            return self.head_bits
        return self.attention_bits if role == "kv" or attention else self.activation_bits


def _uniform(name: str, bits: float, compute: str, meaning: str) -> Precision:
    return Precision(name, bits, bits, bits, bits, compute, compute, meaning)


PRECISIONS: dict[str, Precision] = {
    mode.name: mode
    for mode in (
        _uniform("fp32", 32, "fp32", "everything in 32-bit floats"),
        _uniform("bf16", 16, "fp16", "everything in 16-bit floats"),
        _uniform("fp16", 16, "fp16", "everything in 16-bit floats"),
        _uniform("fp8", 8, "fp8", "everything in 8-bit floats (needs Ada, Hopper or Blackwell)"),
        _uniform("int8", 8, "int8", "everything in 8-bit integers, attention and cache too (VLA-Perf's int8)"),
        _uniform("int4", 4, "int4", "everything in 4-bit integers: a bound, no policy is known to survive it"),
        _uniform("fp4", 4, "fp4", "everything in 4-bit floats (needs Blackwell)"),
        Precision("w8a8", 8, 16, 8, 16, "int8", "fp16", "INT8 weights and activations, attention and head in fp16"),
        Precision(
            "w4a16", AWQ_BITS, 16, 16, 16, "fp16", "fp16", "weight-only INT4 (AWQ, groups of 128), fp16 arithmetic"
        ),
    )
}


def precision(name: str) -> Precision:
    """Return the mode called ``name`` (any case).

    Raises:
        BudgetError: the name is not in the table; the text lists it.
    """
    try:
        return PRECISIONS[name.lower()]
    except KeyError:
        raise BudgetUsageError(f"precision '{name}' is not known; choose one of {', '.join(PRECISIONS)}") from None
