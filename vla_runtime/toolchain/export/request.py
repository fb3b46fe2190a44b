"""What an exporter is asked for, and what it gives back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.int4_stages import Int4Stages
from vla_runtime.toolchain.export.stages import StageSource


@dataclass(frozen=True)
class ExportRequest:
    """Choices of the user. ``joints``: names in the checkpoint's order; ``unit`` of its states and actions."""

    joints: tuple[str, ...]
    unit: str
    dt_s: float
    tokenizer: Path | None = None
    vlm: Path | None = None
    licence: str = "unknown"
    default_instruction: str = ""

    def refuse_features(self, config: dict, known: set[str]) -> None:
        """Refuse a checkpoint that reads something else than pictures and ``known``."""
        features = config.get("input_features", {})
        other = sorted(name for name, each in features.items() if each.get("type") != "VISUAL" and name not in known)
        if other:
            raise UserError(f"the checkpoint also reads {other}, which a bundle cannot give it")
        if not any(each.get("type") == "VISUAL" for each in features.values()):
            raise UserError("the checkpoint reads no camera")


@dataclass(frozen=True)
class Exported:
    """A family's own fields of policy.yaml, and the stages to write.

    ``instruction``: fields besides the tokenizer; None for policies that read no text.
    ``pad_state``, ``pad_action``: the model's widths where larger than the robot's. ``action_scale``: mean, std (rad)
    where they are not in the processors' statistics. ``int4``: linears that the checkpoint brought as INT4.
    """

    family: str
    cameras: list[dict[str, Any]]
    horizon: int
    sampler: dict[str, Any]
    sources: list[StageSource]
    example: dict[str, Any]
    instruction: dict[str, Any] | None = None
    pad_state: int | None = None
    pad_action: int | None = None
    rtc: dict[str, Any] = field(default_factory=dict)
    action_scale: tuple[list[float], list[float]] | None = None
    int4: Int4Stages | None = None
