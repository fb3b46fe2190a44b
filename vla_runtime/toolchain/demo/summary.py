"""All figures of a demo in one dictionary, and as a table to look at."""

from rich.table import Table

from vla_runtime.toolchain.demo import figures as f
from vla_runtime.toolchain.run_log import RunLog


def figures_of(log: RunLog, limits) -> dict:
    """Return the figures of a recorded run; the keys are those that ``vla demo --json`` documents.

    Args:
        log: the recording.
        limits: vla_runtime.control.limits.Limits of the robot.
    """
    return {
        **f.stream_figures(log.commands),
        "commands": len(log.commands),
        "elapsed_executed": f.elapsed_executed(log.commands, log.chunks),
        "rejected_messages": log.controller[-1][1]["rejected_messages"] if log.controller else 0,
        "message_faults": f.message_faults(log.commands),
        "limit_violations": f.limit_violations(log.commands, limits),
        "deadline_misses": f.deadline_misses(log),
        "inference_ms": f.inference_ms(log),
        "answers": f.answers(log),
        "time_in_state_s": f.time_in_state(log),
        "transitions": [list(change) for change in f.transitions(log)],
    }


def what_was_done(transitions: list[list]) -> str:
    """Say what the watchdog did about the fault of the first episode, which ends when an operator drives.

    transitions: [seconds, state, cause], as in the figures; the policy's start is passed over.
    """
    states = [state for _, state, _ in transitions]
    first = states.index("NOMINAL") if "NOMINAL" in states else len(states)
    end = states.index("TELEOP") if "TELEOP" in states else len(states)
    acts = [change for change in transitions[first:end] if change[1] in ("COASTING", "FALLBACK", "FAULT")]
    grave = [change for change in acts if change[1] != "COASTING"]
    if not acts:
        return "nothing: no deadline was missed"
    at, state, cause = (grave or acts)[0]
    text = f"{state}{f' {len(acts)} times' if not grave and len(acts) > 1 else ''}: {cause}"
    back = [seconds for seconds, state, _ in transitions[first:end] if state == "NOMINAL" and seconds > at]
    return f"{text}; the policy drove again after {back[0] - at:.1f} s" if back else f"{text}, until an operator drove"


def too_slow(answers: dict, inference_ms: dict) -> str:
    """Say that inference is too slow for its deadline, by how much, and what to do; "" where it is not.

    Both as in the figures. One may be late, and one in a hundred: a glitch is not slowness.
    """
    if answers["late"] <= max(1.0, 0.01 * answers["count"]):
        return ""
    stage = f"'{answers['slowest_stage']}' {answers['slowest_p99_ms']:.0f} ms"
    return (
        f"{answers['late']} of {answers['count']} answers beyond answer_deadline_s ({answers['deadline_ms']:.0f} ms): "
        f"inference p99 {inference_ms['p99']:.0f} ms, of it {stage}; "
        "free the processor (`uptime`), or make it faster (`vla budget`)"
    )


def summary_table(figures: dict) -> Table:
    """Return the figures as a table of at most 80 columns."""
    table = Table(width=78, show_header=False, title="summary", title_justify="left")
    table.add_column(width=30)
    table.add_column()
    latency = figures["inference_ms"]
    states = ", ".join(f"{state} {seconds:.1f} s" for state, seconds in figures["time_in_state_s"].items())
    cpu, thread = figures["control_cpu_share"], figures["machine"]["bare_thread"]
    yardstick = "not measured"
    if thread:
        stolen = 100 * figures["machine"]["stolen_cpu_share"]
        yardstick = (
            f"{thread['period_error_p99_ms']:.2f} ms; largest gap {thread['max_gap_ms']:.1f} ms "
            f"({stolen:.1f} % of the CPU stolen)"
        )
    rows = [
        ("lifted the right cube", f"{figures['successes']} of {figures['episodes']}"),
        ("lifted a wrong cube", str(figures["wrong_object"])),
        ("commands at the controller", f"{figures['command_rate_hz']:.2f} Hz over {figures['seconds']:.0f} s, "
                                       f"{100 * figures['ticks_share']:.2f} % of the ticks"),
        ("|period - 20 ms|, p99", f"{figures['period_error_p99_ms']:.2f} ms; "
                                  f"largest gap {figures['max_gap_ms']:.1f} ms"),
        ("the same of a bare thread", yardstick),
        ("elapsed waypoints executed", str(figures["elapsed_executed"])),
        ("messages rejected / malformed", f"{figures['rejected_messages']} / {figures['message_faults']}"),
        ("steps beyond a limit", str(figures["limit_violations"])),
        ("deadline misses", str(figures["deadline_misses"])),
        ("inference", f"p50 {latency['p50']:.1f}, p95 {latency['p95']:.1f}, p99 {latency['p99']:.1f}, "
                      f"max {latency['max']:.1f} ms"),
        ("time in state", states),
    ]  # fmt: skip
    slow = too_slow(figures["answers"], latency)
    if slow and not figures.get("fault"):  # a fault may be meant to be slow: the watchdog's line says what it did
        rows.insert(0, ("inference is too slow", slow))
    if figures.get("fault"):
        rows.insert(2, (f"the watchdog, at '{figures['fault']}'", what_was_done(figures["transitions"])))
    if cpu is not None:
        rows.append(("CPU of both control processes", f"{100 * cpu:.1f} % of one core"))
    for row in rows:
        table.add_row(*row)
    return table
