"""The models behind policy.yaml (format vla-bundle/1). `docs/bundles.md` explains every field.

Each model refuses unknown fields, so that a misspelt one is named instead of being ignored.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FORMAT = "vla-bundle/1"
Dtype = Literal["float32", "float16", "int64", "int32", "uint8", "bool"]
Precision = Literal["fp32", "fp16", "int8", "int4"]
Space = Literal["joint_position", "joint_delta", "joint_velocity", "ee_pose", "ee_delta", "ee_step"]
Name = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Strict(BaseModel):
    """A model that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TensorModel(Strict):
    """Fixed shape and dtype of one tensor of a stage."""

    shape: list[Annotated[int, Field(gt=0)]]
    dtype: Dtype


class StageModel(Strict):
    """One ONNX graph. Its outputs feed the inputs of the same name of later stages."""

    file: Name
    precision: Precision = "fp32"
    inputs: dict[Name, TensorModel] = Field(min_length=1)
    outputs: dict[Name, TensorModel] = Field(min_length=1)


class CameraModel(Strict):
    """One camera, as the model was trained to see it: value = (pixel/255 - mean) / std, per RGB channel."""

    name: Name
    width: Annotated[int, Field(gt=0, le=4096)]
    height: Annotated[int, Field(gt=0, le=4096)]
    resize: Literal["stretch", "pad", "crop"] = "stretch"
    antialias: bool = False
    pad_value: Annotated[float, Field(ge=0, le=1)] = 0.0
    pad_side: Literal["both", "top_left"] = "both"
    mean: tuple[Finite, Finite, Finite] = (0.0, 0.0, 0.0)
    std: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)


class StateModel(Strict):
    """The robot's joints as the model reads them (radians), normalised (x - mean) / std, zero-padded to pad_to."""

    joints: list[Name] = Field(min_length=1)
    mean: list[Finite]
    std: list[Positive]
    pad_to: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _lengths(self) -> "StateModel":
        _check_vectors(self.joints, self.mean, self.std, self.pad_to)
        return self


class EndEffectorModel(Strict):
    """One end effector: ``frame`` of the URDF as seen from ``base`` (None: the root), placed by ``joints``."""

    frame: Name
    base: Name | None = None
    joints: list[Name] = Field(min_length=1)
    rotation: Literal["rotvec", "rpy", "none"] = "rotvec"
    axes: Literal["base", "tool"] = "base"
    position_tolerance_m: Positive = 0.002
    rotation_tolerance_rad: Positive = 0.02
    rotation_weight_m: Positive = 0.1

    @model_validator(mode="after")
    def _axes(self) -> "EndEffectorModel":
        if self.axes == "tool" and self.rotation == "none":
            raise ValueError("axes is 'tool', which turn with the rotation, but rotation is 'none'")
        return self

    @property
    def width(self) -> int:
        """How many numbers of a row are its pose."""
        return 3 if self.rotation == "none" else 6


class ActionModel(Strict):
    """What the model emits: ``horizon`` rows in ``space``, de-normalised x * std + mean."""

    space: Space = "joint_position"
    joints: list[Name] = Field(min_length=1)
    discrete: list[Name] = []
    urdf: Name | None = None
    end_effectors: list[EndEffectorModel] = []
    mean: list[Finite]
    std: list[Positive]
    pad_to: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _lengths(self) -> "ActionModel":
        self._check_end_effectors()
        _check_vectors(self.joints, self.mean, self.std, self.pad_to, self.values if self.end_effectors else None)
        unknown = sorted(set(self.discrete) - set(self.joints))
        if unknown:
            raise ValueError(f"discrete names {unknown}, which are not among joints {self.joints}")
        return self

    def _check_end_effectors(self) -> None:
        if self.space.startswith("ee_") != bool(self.end_effectors) or bool(self.end_effectors) != bool(self.urdf):
            raise ValueError(
                f"space is '{self.space}', urdf {self.urdf!r} and end_effectors {len(self.end_effectors)}: "
                "ee_pose, ee_delta and ee_step need both, the other spaces neither"
            )
        placed = [joint for effector in self.end_effectors for joint in effector.joints]
        wrong = {joint for joint in placed if joint not in self.joints or joint in self.discrete}
        wrong |= {joint for joint in placed if placed.count(joint) > 1}
        if wrong:
            raise ValueError(
                f"end_effectors name {sorted(wrong)}: each joint of theirs must be one of action.joints, not discrete, "
                "and belong to one end effector"
            )

    @property
    def values(self) -> int:
        """How many numbers of a row mean something: one a joint, or the poses' and one for each joint beside them."""
        beside = len(self.joints) - sum(len(effector.joints) for effector in self.end_effectors)
        return beside + sum(effector.width for effector in self.end_effectors)

    @property
    def width(self) -> int:
        """Width of the model's action rows, padding included."""
        return self.pad_to or self.values


class JointLimitModel(Strict):
    """Limits that the demonstrations kept (rad, rad/s, rad/s^2, rad/s^3)."""

    lower: Finite
    upper: Finite
    velocity: Positive
    acceleration: Positive
    jerk: Positive | None = None

    @model_validator(mode="after")
    def _order(self) -> "JointLimitModel":
        if self.lower >= self.upper:
            raise ValueError(f"lower {self.lower} is not below upper {self.upper}")
        return self


class StateTextModel(Strict):
    """The state as text, pi0.5's way: each of ``values`` normalised numbers as its bin of ``bins`` between -1 and 1.

    A number below -1 is bin -1, one above 1 the last bin.
    """

    values: Annotated[int, Field(gt=0)]
    bins: Annotated[int, Field(gt=1)]


class InstructionModel(Strict):
    """How an instruction becomes tokens. ``spaces``: its characters that become spaces, once its ends are stripped."""

    tokenizer: Name
    max_tokens: Annotated[int, Field(gt=0, le=4096)]
    default: str = ""
    template: str = "{instruction}"
    spaces: str = ""
    state: StateTextModel | None = None

    @model_validator(mode="after")
    def _template(self) -> "InstructionModel":
        if self.template.count("{instruction}") != 1:
            raise ValueError(f"template {self.template!r} must hold {{instruction}} exactly once")
        if self.template.count("{state}") != (self.state is not None):
            raise ValueError(
                f"template {self.template!r} must hold {{state}} once if state is given, and else not at all"
            )
        return self


class SamplerModel(Strict):
    """How actions are drawn: ``flow`` integrates v from noise (time 0) to clean (time 1) in ``steps`` Euler steps."""

    kind: Literal["flow", "direct", "tokens"] = "flow"
    steps: Annotated[int, Field(gt=0, le=1000)] = 1
    noise: Literal["normal", "none"] = "normal"
    time: Literal["noise_to_clean"] = "noise_to_clean"
    bins: Annotated[int, Field(gt=1)] | None = None


class RtcModel(Strict):
    """Real-time chunking: whether a committed prefix was part of the training (arXiv 2512.05964)."""

    prefix_trained: bool = False
    max_delay_steps: Annotated[int, Field(ge=0)] = 0
    max_guidance_weight: Positive = 5.0


class PolicyModel(Strict):
    """The whole of policy.yaml."""

    format: Literal["vla-bundle/1"]
    name: Name
    family: Name
    licence: Name
    description: str = ""
    dt_s: Positive
    horizon: Annotated[int, Field(gt=0, le=10000)]
    cameras: list[CameraModel]
    state: StateModel
    action: ActionModel
    limits: dict[Name, JointLimitModel] = {}
    instruction: InstructionModel | None = None
    sampler: SamplerModel
    rtc: RtcModel = RtcModel()
    stages: dict[Name, StageModel] = Field(min_length=1)
    files: dict[Name, Sha256] = Field(min_length=1)
    provenance: dict[str, Any] = {}

    @property
    def joint_std(self) -> list[float]:
        """What is usual for each action joint, in its unit: the scale of an error. A pose's numbers have none."""
        if not self.action.end_effectors:
            return self.action.std
        placed = {joint for effector in self.action.end_effectors for joint in effector.joints}
        others = [joint for joint in self.action.joints if joint not in placed]
        found = dict(zip(self.state.joints, self.state.std))
        found |= dict(zip(others, self.action.std[len(self.action.std) - len(others) :]))
        return [found[joint] for joint in self.action.joints]

    @model_validator(mode="after")
    def _consistent(self) -> "PolicyModel":
        names = [camera.name for camera in self.cameras]
        if len(set(names)) != len(names):
            raise ValueError(f"cameras: a name occurs twice in {names}")
        sizes = {(camera.height, camera.width) for camera in self.cameras}
        if len(sizes) > 1:
            raise ValueError(
                f"cameras: all share one images tensor, so all need one size; found {sorted(sizes)} (h, w)"
            )
        told = self.instruction.state.values if self.instruction and self.instruction.state else len(self.state.joints)
        if told != len(self.state.joints):
            raise ValueError(f"instruction.state.values is {told}, but the state has {len(self.state.joints)} joints")
        missing = sorted(set(self.action.joints) - set(self.limits)) if self.limits else []
        if missing:
            raise ValueError(f"limits: no entry for the action joints {missing}")
        if self.rtc.max_delay_steps >= self.horizon:
            raise ValueError(f"rtc.max_delay_steps is {self.rtc.max_delay_steps}, not below horizon {self.horizon}")
        return self


def _check_vectors(
    joints: list[str], mean: list[float], std: list[float], pad_to: int | None, values: int | None = None
) -> None:
    if len(set(joints)) != len(joints):
        raise ValueError(f"joints: a name occurs twice in {joints}")
    wanted, what = (len(joints), "joints") if values is None else (values, "numbers of a row")
    for label, vector in (("mean", mean), ("std", std)):
        if len(vector) != wanted:
            raise ValueError(f"{label} has {len(vector)} values for {wanted} {what}")
    if pad_to is not None and pad_to < wanted:
        raise ValueError(f"pad_to is {pad_to}, below the {wanted} {what}")
