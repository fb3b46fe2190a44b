"""Level (a): every stage alone, on the very inputs that the reference's stage had."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from vla_runtime.engines.base import Engine
from vla_runtime.engines.errors import EngineError
from vla_runtime.errors import UserError
from vla_runtime.policy.bundle_model import PolicyModel
from vla_runtime.toolchain.observations import REFERENCE_FILE
from vla_runtime.toolchain.parity.budgets import StageBudget, TokenBudget
from vla_runtime.toolchain.parity.levels import Level, judge
from vla_runtime.toolchain.parity.metrics import relative_error, token_cosines, token_kl

LOGITS = "logits"  # an output of this name holds action-token logits


@dataclass(frozen=True)
class Call:
    """One run of a stage of the reference."""

    stage: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def calls_of(policy: PolicyModel, tensors: Mapping[str, np.ndarray]) -> list[Call]:
    """Return one call of each stage for each of the M rows of ``tensors`` (M, ...), named as in ``policy``.

    Stages of which no output was kept are left out; UserError naming an input that was not.
    """
    calls = []
    for name, stage in policy.stages.items():
        outputs = [each for each in stage.outputs if each in tensors]
        missing = [each for each in stage.inputs if each not in tensors]
        if outputs and missing:
            raise UserError(f"{REFERENCE_FILE} holds outputs of stage '{name}' but not its inputs {missing}")
        for row in range(len(tensors[outputs[0]]) if outputs else 0):
            given, made = ({each: tensors[each][row] for each in group} for group in (stage.inputs, outputs))
            calls.append(Call(name, given, made))
    return calls


class Recorder:
    """Wraps the reference's engines and keeps every call (``wrap`` of ``load_policy``)."""

    def __init__(self):
        self.calls: list[Call] = []

    def wrap(self, engine: Engine) -> Engine:
        """Return an engine that does the same, and is remembered."""
        return _Recorded(engine, self.calls)


class _Recorded:
    def __init__(self, engine: Engine, calls: list[Call]):
        self._engine, self._calls = engine, calls
        self.stage, self.name = engine.stage, engine.name
        self.inputs, self.outputs = engine.inputs, engine.outputs

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self._engine.run(inputs)
        # The policy changes x and time in place between steps.
        self._calls.append(Call(self.stage, {k: v.copy() for k, v in inputs.items()}, dict(outputs)))
        return outputs


def compare_stages(
    engines: Mapping[str, Engine], calls: Iterable[Call], budget: StageBudget, tokens: TokenBudget
) -> Level:
    """Run the candidate's stages on recorded calls of the reference.

    Per output: the mean and worst cosine over tokens against the budget; logits also by KL divergence.
    A stage that is out of budget is named, with its output.
    """
    cosines: dict[tuple[str, str], list[np.ndarray]] = {}
    errors: dict[tuple[str, str], list[float]] = {}
    divergences: dict[tuple[str, str], list[np.ndarray]] = {}
    faults: list[str] = []
    for call in calls:
        engine = engines[call.stage]
        try:
            given = {n: v.astype(engine.inputs[n].dtype) for n, v in call.inputs.items() if n in engine.inputs}
            outputs = engine.run(given)
        except EngineError as error:
            faults.append(str(error))
            break
        for name, wanted in call.outputs.items():
            if outputs[name].shape != wanted.shape:
                shapes = f"{list(outputs[name].shape)}, the reference's {list(wanted.shape)}"
                faults.append(f"stage '{call.stage}': '{name}' is {shapes}")
                continue
            key = (call.stage, name)
            cosines.setdefault(key, []).append(token_cosines(wanted, outputs[name]))
            errors.setdefault(key, []).append(relative_error(wanted, outputs[name]))
            if name == LOGITS:
                divergences.setdefault(key, []).append(token_kl(wanted, outputs[name]))
    rows = []
    for (stage, name), values in cosines.items():
        every = np.concatenate(values)
        row = {
            "stage": stage,
            "output": name,
            "cosine_mean": float(every.mean()),
            "cosine_worst": float(every.min()),
            "relative_error": float(np.mean(errors[stage, name])),
            "tokens": int(every.size),
        }
        for label, found, least in (
            ("mean", row["cosine_mean"], budget.cosine_mean),
            ("worst", row["cosine_worst"], budget.cosine_worst),
        ):
            if not found >= least:
                faults.append(f"stage '{stage}': {label} cosine of '{name}' is {found:.5f}, the budget {least}")
        if (stage, name) in divergences:
            kl = np.concatenate(divergences[stage, name])
            row |= {"kl_mean": float(kl.mean()), "kl_p99": float(np.percentile(kl, 99))}
            for label, most in (("kl_mean", tokens.kl_mean), ("kl_p99", tokens.kl_p99)):
                if not row[label] <= most:
                    faults.append(f"stage '{stage}': {label} of '{name}' is {row[label]:.4f} nats, the budget {most}")
        rows.append(row)
    if not rows and not faults:
        faults.append("no stage was compared")
    return judge("stages", faults, {"outputs": rows})
