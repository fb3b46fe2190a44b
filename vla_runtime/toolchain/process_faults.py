"""Faults in real processes over real DDS: strike, and measure when the fallback's first command reaches the controller.

Each fault has an instant at which some deadline passes (``due``), worked out from what a witness beside the nodes
saw: the strike itself, the requests, the chunks. The promise is that the fallback's first command arrives at most two
control periods after it, that no step breaks a limit, and that the arm comes to rest.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vla_runtime.control.limits import Limits
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE
from vla_runtime.paths import share
from vla_runtime.toolchain.demo import processes as p
from vla_runtime.toolchain.demo.conductor import Conductor
from vla_runtime.toolchain.demo.domains import domain_is_busy, held_domain
from vla_runtime.toolchain.demo.faults import Fault
from vla_runtime.toolchain.demo.figures import limit_violations, message_faults
from vla_runtime.toolchain.demo.stage import DRIVING, ROBOT, Scene, set_stage, wait_until_driving
from vla_runtime.toolchain.witness import Witness

GRACE_S = 0.040
REST_RAD_S = 0.03
REST_RAD = 0.005
REST_WITHIN_S = 1.5
RECOVERY_S = 60.0


@dataclass(frozen=True)
class Kind:
    """A fault: whom it strikes and how. ``due(witness, strike)`` is when the deadline passes (ROS seconds)."""

    due: Callable[[Witness, float], float]
    process: str = ""
    signal: int = 0
    policy: str = ""
    camera: str = ""


@dataclass(frozen=True)
class Strike:
    """What one fault led to. Times in ms; ``late_ms`` counts from the deadline (negative: before it).

    ``stall_ms``: how long the machine itself kept a bare real-time thread from running meanwhile.
    """

    kind: str
    switch_ms: float
    late_ms: float
    rest_ms: float
    stall_ms: float
    violations: tuple[str, ...]


_DEADLINES = WATCHDOG_TABLE.load({})


def _unanswered(witness: Witness, strike: float) -> float:
    """The oldest request that was open at the strike or came after it, and was never answered, plus the deadline."""
    return witness.first_open_request(strike) + _DEADLINES.policy_deadline_s


def _used_up(witness: Witness, strike: float) -> float:
    """The end of the last good plan, plus the silence that the executor is allowed."""
    return witness.end_of_last_good_plan(strike) + _DEADLINES.stream_deadline_s


def _policy_gone(witness: Witness, strike: float) -> float:
    return min(strike + _DEADLINES.policy_deadline_s, _used_up(witness, strike))


def _executor_gone(_witness: Witness, strike: float) -> float:
    return strike + _DEADLINES.stream_deadline_s


KINDS: dict[str, Kind] = {
    "kill_policy": Kind(_policy_gone, "policy", signal.SIGKILL),
    "stop_policy": Kind(_policy_gone, "policy", signal.SIGSTOP),
    "kill_executor": Kind(_executor_gone, "executor", signal.SIGKILL),
    "stop_executor": Kind(_executor_gone, "executor", signal.SIGSTOP),
    "stale_joints": Kind(lambda _w, strike: strike + _DEADLINES.joint_state_deadline_s, "sim_robot", signal.SIGSTOP),
    "nan": Kind(_used_up, policy="nan"),
    "late": Kind(lambda w, s: min(_unanswered(w, s), _used_up(w, s)), policy="hang"),
    "stale_camera": Kind(lambda w, s: min(_unanswered(w, s), _used_up(w, s)), camera="front"),
}


def run_campaign(count: int, bundle: Path, seed: int, out: Path, progress: Callable[[str, Strike], None]) -> dict:
    """Strike ``count`` times, the kinds in turn, at random phases.

    Args:
        count: how many faults.
        bundle: the policy that drives the simulated arm.
        seed: of the phases.
        out: folder for logs and the recording.
        progress: called after each fault with its kind and what came of it.

    Returns:
        ``faults``, ``kinds``, ``violations`` (list of texts), ``switch_ms`` and ``late_ms`` (p50, p99, max of all),
        ``per_kind`` (the same by kind), ``rest_ms``, ``machine_stall_ms``.
    """
    rng = random.Random(seed)
    limits = _limits()
    strikes: list[Strike] = []
    with held_domain(domain_is_busy) as domain, p.Processes(out) as processes:
        os.environ.update(p.environment(domain))
        conductor, witness = Conductor(), Witness()
        try:
            set_stage(processes, out / "bag", Scene(bundle, 0, "pick up the red cube"), Fault("", policy_fault="any"))
            wait_until_driving(processes, conductor, lambda: None)
            for number in range(count):
                name = list(KINDS)[number % len(KINDS)]
                _settle(conductor, witness, rng)
                strikes.append(_strike(name, processes, conductor, witness, limits))
                progress(name, strikes[-1])
        finally:
            witness.close()
            conductor.close()
    return summary(strikes)


def kill_watchdog(bundle: Path, out: Path, times: int, seed: int = 0) -> dict:
    """Kill the watchdog while the arm moves, ``times`` times: the last message alone must bring the arm to rest.

    Returns:
        ``kills``, ``rest_ms`` (p50, p99, max: from the kill until every joint is measured at rest, the gripper
        apart: it goes on to close where what it holds slips), ``violations``.
    """
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    rests, violations = [], []
    limits = _limits()
    arm = [name for name, discrete in zip(limits.joint_names, limits.discrete) if not discrete]
    with held_domain(domain_is_busy) as domain, p.Processes(out) as processes:
        os.environ.update(p.environment(domain))
        conductor, witness = Conductor(), Witness()
        try:
            set_stage(processes, out / "bag", Scene(bundle, 0, "pick up the red cube"), None)
            wait_until_driving(processes, conductor, lambda: None)
            for _ in range(times):
                _settle(conductor, witness, rng)
                begin = time.time()
                processes.by_name["watchdog"].send(signal.SIGKILL)
                conductor.wait_for(lambda: False, 2.0, lambda: None)
                rests.append(witness.rest_after(begin, arm, REST_RAD) - begin)
                if rests[-1] > REST_WITHIN_S:
                    violations.append(f"the arm was not at rest within {REST_WITHIN_S} s of the watchdog's death")
                violations += _violations(witness.commands_since(begin - 1.0), limits, float("inf"))
                _heal(Kind(_executor_gone, "watchdog", signal.SIGKILL), processes, conductor)
        finally:
            witness.close()
            conductor.close()
    return {"kills": times, "rest_ms": _figures([rest * 1e3 for rest in rests]), "violations": violations}


def _limits() -> Limits:
    return Limits.from_yaml(share("config", "robots", f"{ROBOT}.yaml"))


def _settle(conductor: Conductor, witness: Witness, rng: random.Random) -> None:
    """Wait until the policy has had the arm for a random while; move the scene on so that the arm keeps moving.

    And until the witness hears the policy's plans, too: one that was started anew may be known to it later than to
    executor and watchdog, and a deadline would be reckoned from its predecessor's last plan.
    """
    if not conductor.wait_for(lambda: conductor.view().state in DRIVING, RECOVERY_S, lambda: None):
        raise RuntimeError(f"the policy did not get the arm back within {RECOVERY_S:.0f} s: {conductor.view().cause}")
    if not conductor.wait_for(lambda: witness.hears_plans(time.time()), RECOVERY_S, lambda: None):
        raise RuntimeError(f"the policy drives, but no plan was heard here within {RECOVERY_S:.0f} s")
    conductor.set_scene(rng.randrange(10**6), f"pick up the {rng.choice(('red', 'green', 'blue'))} cube")
    conductor.wait_for(lambda: False, rng.uniform(0.6, 1.4), lambda: None)


def _strike(name: str, processes: p.Processes, conductor: Conductor, witness: Witness, limits: Limits) -> Strike:
    kind = KINDS[name]
    begin = time.time()
    if kind.process:
        processes.by_name[kind.process].send(kind.signal)
    else:
        conductor.tell_fault("policy" if kind.policy else "camera", kind.policy or kind.camera)
    conductor.wait_for(lambda: witness.first_fallback(begin) is not None, 4.0, lambda: None)
    conductor.wait_for(lambda: False, 0.6, lambda: None)
    due, first = kind.due(witness, begin), witness.first_fallback(begin)
    _heal(kind, processes, conductor)
    conductor.wait_for(lambda: False, 0.3, lambda: None)
    commands = witness.commands_since(begin - 1.0)
    stall = witness.machine_stall(begin)
    found = [f"{name}: {text}" for text in _violations(commands, limits, stall)]
    if first is None:
        never = float("inf")
        return Strike(name, never, never, never, stall * 1e3, (*found, f"{name}: no fallback within 4 s"))
    late = first.received - due
    rest = _rest(commands, first.received)
    if late > GRACE_S + stall:
        found.append(f"{name}: fallback {late * 1e3:.1f} ms after the deadline")
    if rest > REST_WITHIN_S:
        found.append(f"{name}: the command was not at rest within {REST_WITHIN_S} s")
    return Strike(name, (first.received - begin) * 1e3, late * 1e3, rest * 1e3, stall * 1e3, tuple(found))


def _heal(kind: Kind, processes: p.Processes, conductor: Conductor) -> None:
    if kind.signal == signal.SIGKILL:
        processes.by_name[kind.process].popen.wait()
        processes.by_name[kind.process].start()
    elif kind.process:
        processes.by_name[kind.process].send(signal.SIGCONT)
    else:
        conductor.tell_fault("policy" if kind.policy else "camera", "none")


def _violations(commands: list, limits: Limits, stall: float) -> list[str]:
    found = []
    steps, faults = limit_violations(commands, limits), message_faults(commands)
    if steps:
        found.append(f"{steps} steps beyond a limit")
    if faults:
        found.append(f"{faults} malformed messages")
    received = np.array([command.received for command in commands])
    if len(received) > 1 and np.diff(received).max() > GRACE_S + stall:
        found.append(f"a gap of {np.diff(received).max() * 1e3:.1f} ms in the stream")
    return found


def _rest(commands: list, since: float) -> float:
    """Seconds from the fallback's first command until the commanded velocity is nearly zero; infinite if never."""
    for command in commands:
        if command.received >= since and np.abs(command.velocities[0]).max() < REST_RAD_S:
            return command.received - since
    return float("inf")


def summary(strikes: list[Strike]) -> dict:
    """Return the figures of a campaign as plain data."""
    kinds = sorted({strike.kind for strike in strikes})
    return {
        "faults": len(strikes),
        "kinds": kinds,
        "violations": [text for strike in strikes for text in strike.violations],
        "switch_ms": _figures([strike.switch_ms for strike in strikes]),
        "late_ms": _figures([strike.late_ms for strike in strikes]),
        "rest_ms": _figures([strike.rest_ms for strike in strikes]),
        "machine_stall_ms": _figures([strike.stall_ms for strike in strikes]),
        "per_kind": {
            kind: {
                "faults": sum(strike.kind == kind for strike in strikes),
                "switch_ms": _figures([s.switch_ms for s in strikes if s.kind == kind]),
                "late_ms": _figures([s.late_ms for s in strikes if s.kind == kind]),
            }
            for kind in kinds
        },
        "strikes": [asdict(strike) for strike in strikes],
    }


def _figures(values: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99], method="higher")
    return {"p50": float(p50), "p99": float(p99), "max": float(max(values))}
