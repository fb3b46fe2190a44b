"""The roofline: what each stage costs on a computer, which bound holds, and what no engine can go below.

Operator time = max(arithmetic, bytes); operator times add up (VLA-Perf, arXiv 2602.18397). A prediction divides the
roofline by an efficiency. The floor is something else: the physics. Even an engine that overlaps everything must do
the arithmetic at peak and read the weights and cached keys once in every pass (less what a cache can keep).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vla_runtime.toolchain.budget.errors import BudgetError, BudgetUsageError
from vla_runtime.toolchain.budget.hardware import GIGABYTE, Computer, Efficiency, OperatorTime, tensor_bytes
from vla_runtime.toolchain.budget.operators import Operator
from vla_runtime.toolchain.budget.precision import Precision
from vla_runtime.toolchain.budget.stages import Stage


@dataclass(frozen=True)
class OperatorCost:
    """An operator within a stage: its roofline over all repeats and passes, in milliseconds, FLOP and bytes."""

    operator: Operator
    ms: float
    time: OperatorTime
    executions: int
    flop: float
    bytes: float

    @property
    def bound(self) -> str:
        """``compute``, ``memory`` or ``overhead``: the longest of the three."""
        return _longest(self.time.compute_s, self.time.memory_s, self.time.overhead_s)


@dataclass(frozen=True)
class StageBudget:
    """One stage's cost. All times in ms for the whole stage (all passes).

    Attributes:
        ms: the prediction, roofline_ms / efficiency. floor_ms: what no engine can go below.
        bound: what takes longest: ``compute``, ``memory`` or ``overhead`` (starting operators).
        intensity: FLOP per byte of all tensors, those kept on chip included.
        weight_bytes: weights that one pass reads.
    """

    name: str
    work: str
    precision: str
    passes: int
    ms: float
    roofline_ms: float
    floor_ms: float
    compute_ms: float
    memory_ms: float
    overhead_ms: float
    bound: str
    intensity: float
    flop: float
    bytes: float
    weight_bytes: float
    efficiency: Efficiency
    operators: tuple[OperatorCost, ...]


@dataclass(frozen=True)
class Budget:
    """What one inference of a policy costs on a computer, stage by stage."""

    policy: str
    device: str
    unit: str
    stages: tuple[StageBudget, ...]

    @property
    def precision(self) -> str:
        """The number format, with those of stages that differ from the first: ``bf16, prefill w4a16``."""
        first = self.stages[0].precision
        return ", ".join([first, *(f"{s.name} {s.precision}" for s in self.stages if s.precision != first)])

    @property
    def total_ms(self) -> float:
        """The stages run one after the other."""
        return sum(stage.ms for stage in self.stages)

    @property
    def roofline_ms(self) -> float:
        """Total at efficiency 1."""
        return sum(stage.roofline_ms for stage in self.stages)

    @property
    def floor_ms(self) -> float:
        """Sum of the stages' floors: they depend on each other, so they cannot overlap within one inference."""
        return sum(stage.floor_ms for stage in self.stages)

    def stage(self, name: str) -> StageBudget | None:
        """Return the stage with that (canonical) name, or None."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def with_efficiency(self, name: str, efficiency: Efficiency) -> "Budget":
        """Return the budget with one stage predicted by another efficiency; roofline and floor stay."""
        changed = []
        for stage in self.stages:
            if stage.name == name:
                stage = replace(stage, ms=stage.roofline_ms / efficiency.value, efficiency=efficiency)
            changed.append(stage)
        return replace(self, stages=tuple(changed))


def evaluate(
    name: str,
    stages: Iterable[Stage],
    computer: Computer,
    precision: Precision | Mapping[str, Precision],
    *,
    unit: str = "binary",
    efficiency: Efficiency | Mapping[str, Efficiency] | None = None,
) -> Budget:
    """Return the budget of ``stages`` on ``computer``.

    Args:
        name: the policy's name.
        precision: one number format for all stages, or one by stage name.
        unit: how many bytes a GB/s of the data sheet moves: ``binary`` 2^30 (VLA-Perf), ``decimal`` 1e9.
        efficiency: replaces the computer's own, for all stages or by stage name; 1 gives the bare roofline.

    Raises:
        BudgetError: the computer refuses the number format, the unit is not known, or an efficiency is not positive.
    """
    if unit not in GIGABYTE:
        raise BudgetUsageError(f"bandwidth unit '{unit}' is not known; choose one of {', '.join(GIGABYTE)}")
    budgets = []
    for stage in stages:
        mode = precision[stage.name] if isinstance(precision, Mapping) else precision
        refusal = computer.refusal(mode)
        if refusal:
            raise BudgetError(refusal)
        share = efficiency.get(stage.name) if isinstance(efficiency, Mapping) else efficiency
        budgets.append(_stage(stage, computer, mode, unit, share or computer.efficiency))
    if not budgets:
        raise BudgetError(f"{name} has no stages to budget")
    return Budget(name, computer.name, unit, tuple(budgets))


def _stage(stage: Stage, computer: Computer, precision: Precision, unit: str, efficiency: Efficiency) -> StageBudget:
    if not 0 < efficiency.value < float("inf"):
        raise BudgetError(f"efficiency must be a positive number, not {efficiency.value!r}")
    costs = [_operator(operator, stage.passes, computer, precision, unit) for operator in stage.operators]
    compute, memory, overhead = (
        sum(getattr(cost.time, part) * cost.executions for cost in costs) * 1e3
        for part in ("compute_s", "memory_s", "overhead_s")
    )
    flop = sum(cost.flop for cost in costs)
    moved = sum(cost.bytes for cost in costs)
    roofline_ms = sum(cost.ms for cost in costs)
    return StageBudget(
        name=stage.name,
        work=stage.work,
        precision=precision.name,
        passes=stage.passes,
        ms=roofline_ms / efficiency.value,
        roofline_ms=roofline_ms,
        floor_ms=_floor_ms(stage, computer, precision),
        compute_ms=compute,
        memory_ms=memory,
        overhead_ms=overhead,
        bound=_longest(compute, memory, overhead),
        intensity=flop / moved if moved else 0.0,
        flop=flop,
        bytes=moved,
        weight_bytes=_weight_bytes(stage.operators, precision),
        efficiency=efficiency,
        operators=tuple(costs),
    )


def _operator(operator: Operator, passes: int, computer: Computer, precision: Precision, unit: str) -> OperatorCost:
    time = computer.time(operator, precision, unit)
    executions = operator.repeat * passes
    moved = sum(tensor_bytes(tensor, operator, precision) for tensor in operator.tensors)
    flop = 2.0 * operator.macs * executions
    return OperatorCost(operator, time.seconds * executions * 1e3, time, executions, flop, moved * executions)


def _floor_ms(stage: Stage, computer: Computer, precision: Precision) -> float:
    compute = memory = 0.0
    operators = [operator for operator in stage.operators if not operator.counted_twice]
    for operator in operators:
        arithmetic, unavoidable = computer.floor(operator, precision)
        compute += arithmetic * operator.repeat
        memory += unavoidable * operator.repeat
    weights = _weight_bytes(operators, precision)
    # From the second pass on, what the cache can keep of the weights need not be read again
    again = max(0.0, 1 - computer.cache_mb * 1e6 / weights) if weights else 1.0
    return 1e3 * max(compute * stage.passes, memory * (1 + again * (stage.passes - 1)))


def _weight_bytes(operators: Iterable[Operator], precision: Precision) -> float:
    return sum(
        tensor_bytes(tensor, operator, precision) * operator.repeat
        for operator in operators
        for tensor in operator.tensors
        if tensor.role in ("weight", "head")
    )


def _longest(compute: float, memory: float, overhead: float) -> str:
    return max((compute, "compute"), (memory, "memory"), (overhead, "overhead"), key=lambda pair: pair[0])[1]
