"""The latency budget of a Vision-Language-Action policy: an analytical model, checked against published numbers.

As a library (times in ms, bandwidth in GB/s, rates in Hz; every function quotes the value that it refuses)::

    from vla_runtime.toolchain import budget

    device = budget.load_devices()["agx-orin-64"]
    subject = budget.find_subject("pi0", budget.load_policies())
    modes = budget.parse_precision("fp16,prefill=w4a16")
    result = subject.budget(device, modes, efficiency=budget.Efficiency(1.0, "bare roofline"))
    result.stage("action").bound            # 'memory'
    budget.control_budget(result.total_ms, horizon=50, step_s=0.02).verdict

Equations and tables: VLA-Perf (arXiv 2602.18397); see docs/budget.md for units, sources and conventions.
"""

from vla_runtime.toolchain.budget.control import ControlBudget, control_budget, delay_ticks, horizon_ticks
from vla_runtime.toolchain.budget.errors import BudgetError
from vla_runtime.toolchain.budget.flags import Flag, below_floor
from vla_runtime.toolchain.budget.hardware import Device, Efficiency, load_devices
from vla_runtime.toolchain.budget.json_form import as_dict
from vla_runtime.toolchain.budget.policies import PolicyShape, load_policies
from vla_runtime.toolchain.budget.precision import PRECISIONS, Precision, precision
from vla_runtime.toolchain.budget.profile import LatencyProfile, memory_bound_ms_per_token
from vla_runtime.toolchain.budget.report import Branches, Loop, Report, report
from vla_runtime.toolchain.budget.roofline import Budget, StageBudget, evaluate
from vla_runtime.toolchain.budget.subjects import Subject, find_subject, parse_precision

__all__ = [
    "PRECISIONS",
    "Branches",
    "Budget",
    "BudgetError",
    "ControlBudget",
    "Device",
    "Efficiency",
    "Flag",
    "LatencyProfile",
    "Loop",
    "PolicyShape",
    "Precision",
    "Report",
    "StageBudget",
    "Subject",
    "as_dict",
    "below_floor",
    "control_budget",
    "delay_ticks",
    "evaluate",
    "find_subject",
    "horizon_ticks",
    "load_devices",
    "load_policies",
    "memory_bound_ms_per_token",
    "parse_precision",
    "precision",
    "report",
]
