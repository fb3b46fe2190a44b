"""Budgets of parity: how much may differ. They come from a file; a missing one is an error, never a default."""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vla_runtime.errors import UserError
from vla_runtime.paths import share

LevelName = Literal["contract", "stages", "ticks", "tokens", "trajectories", "closed_loop"]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """Refuses unknown fields; every field is required."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StageBudget(Strict):
    """Cosine between each token's embedding and the reference's."""

    cosine_mean: Share
    cosine_worst: Share


class TickBudget(Strict):
    """Error of one chunk's rows, per joint, in units of the action's standard deviation."""

    mse: Positive
    p99: Positive


class TokenBudget(Strict):
    """Kullback-Leibler divergence of the action tokens' distributions, nats."""

    kl_mean: Positive
    kl_p99: Positive


class TrajectoryBudget(Strict):
    """Distance between the tool points that two chunks lead to, metres."""

    mean_m: Positive
    p99_m: Positive


class ClosedLoopBudget(Strict):
    """How much success may be lost, how sure one must be, and below what tick error it need not be run.

    ``implied_below_rad``: where every action of every tick agrees within this, arms cannot tell the two apart.
    """

    margin: Share
    confidence: Share
    episodes: Annotated[int, Field(gt=0)]
    implied_below_rad: Positive


class Budgets(Strict):
    """The whole file."""

    required: list[LevelName] = Field(min_length=1)
    stages: StageBudget
    ticks: TickBudget
    tokens: TokenBudget
    trajectories: TrajectoryBudget
    closed_loop: ClosedLoopBudget


def load_budgets(path: Path | None = None) -> Budgets:
    """Read budgets from ``path`` (default: config/parity_budgets.yaml); UserError naming every missing one."""
    chosen = Path(path) if path is not None else share("config", "parity_budgets.yaml")
    try:
        return Budgets.model_validate(yaml.safe_load(chosen.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{chosen}: no such file of parity budgets; without budgets nothing can pass") from None
    except yaml.YAMLError as error:
        raise UserError(f"{chosen}: not readable as YAML: {error}") from None
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(p) for p in fault['loc']) or 'the file'}: {fault['msg']}" for fault in error.errors()
        )
        raise UserError(f"{chosen}: {faults}. Every budget must be given: a missing one never passes.") from None
