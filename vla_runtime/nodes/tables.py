"""The parameters that the nodes themselves have, besides those of the control core. `vla docs` renders them all."""

from dataclasses import dataclass

from vla_runtime.control.parameters import Parameter, Table
from vla_runtime.nodes.observer import TRANSPORTS

ROBOT = Parameter(
    "robot",
    str,
    "",
    doc="the robot's limits and named poses: a YAML file, or the name of one in config/robots (so101_sim)",
    live=False,
)
AUTOSTART = Parameter(
    "autostart", bool, True, doc="configure and activate without being told to by a lifecycle manager", live=False
)


@dataclass(frozen=True)
class ControlNodeSettings:
    """What executor and watchdog have in common as processes."""

    robot: str
    autostart: bool
    realtime_priority: int
    cpu: int
    lock_memory: bool
    stamp_mode: str
    trace: bool


CONTROL_NODE = Table(
    title="executor and watchdog, as processes",
    parameters=(
        ROBOT,
        AUTOSTART,
        Parameter(
            "realtime_priority",
            int,
            50,
            min=0,
            max=98,
            doc="SCHED_FIFO priority of the control loop; 0 leaves it at normal priority",
            live=False,
        ),
        Parameter(
            "cpu",
            int,
            -1,
            min=-1,
            max=4095,
            doc="core that the process stays on, best one that little else may use (isolcpus); -1: any",
            live=False,
        ),
        Parameter("lock_memory", bool, False, doc="keep the process in memory (mlockall)", live=False),
        Parameter(
            "stamp_mode",
            str,
            "absolute",
            choices=("absolute", "immediate"),
            doc="stamps on joint_trajectory: absolute, or 0 (begin on arrival) for a controller on a host with another "
            "clock",
            live=False,
        ),
        Parameter(
            "trace",
            bool,
            True,
            doc="say on ~/trace what the control core was asked and answered, so that a recording can be replayed bit "
            "for bit (vla replay)",
            live=False,
        ),
    ),
    build=ControlNodeSettings,
)


@dataclass(frozen=True)
class PolicyNodeSettings:
    """How a policy is served."""

    bundle: str
    engine: str
    device: str
    threads: int
    allow_unproven: bool
    robot: str
    autostart: bool
    image_transport: str
    max_input_age_s: float
    frame_wait_s: float
    stuck_after_s: float
    max_failures: int
    instruction: str
    trace: bool


POLICY_NODE = Table(
    title="policy",
    parameters=(
        Parameter("bundle", str, "", doc="directory of the policy's bundle (policy.yaml, ONNX stages)", live=False),
        Parameter("engine", str, "auto", doc="engine that runs the stages; auto: the best that is here", live=False),
        Parameter("device", str, "cpu", doc="device of that engine: cpu, cuda or tensorrt", live=False),
        Parameter(
            "threads",
            int,
            1,
            min=1,
            max=64,
            doc="CPU threads of one stage; control needs a core for itself, so leave at least one free",
            live=False,
        ),
        Parameter(
            "allow_unproven",
            bool,
            False,
            doc="run an engine that has no passing parity record for this bundle; for the laboratory only",
            live=False,
        ),
        ROBOT,
        AUTOSTART,
        Parameter(
            "image_transport",
            str,
            "raw",
            choices=tuple(TRANSPORTS),
            doc="raw: <camera>/image_raw (Image); compressed: <camera>/image_raw/compressed (CompressedImage)",
            live=False,
        ),
        Parameter(
            "max_input_age_s",
            float,
            0.2,
            min=0.01,
            max=5.0,
            unit="s",
            doc="the oldest picture or joint state that an observation may be made of",
            live=False,
        ),
        Parameter(
            "frame_wait_s",
            float,
            0.15,
            min=0.0,
            max=5.0,
            unit="s",
            doc="how long a request waits for a frame that was not used yet; then it stays unanswered",
        ),
        Parameter(
            "stuck_after_s",
            float,
            5.0,
            min=0.5,
            max=600.0,
            unit="s",
            doc="an inference that takes longer is a fault from which only a new process recovers: the node ends",
        ),
        Parameter(
            "max_failures", int, 3, min=1, max=100, doc="exceptions of the policy in a row after which the node ends",
            live=False,
        ),
        Parameter(
            "instruction",
            str,
            "",
            doc="what to do, until something is published on topic instruction; empty: the bundle's default",
        ),
        Parameter(
            "trace",
            bool,
            True,
            doc="say on ~/trace what each answer was computed from, so that a recording's answers can be computed "
            "again (vla replay --infer)",
            live=False,
        ),
    ),
    build=PolicyNodeSettings,
)  # fmt: skip
