"""What an operator looks at, gathered from messages. Pure: times come in, no ROS, no terminal.

Keys are those of the nodes' states and of /diagnostics (nested ones with dots, as they travel): docs/operations.md.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

LEVELS = ("ok", "warning", "error", "stale")
NEWS_S = 1.5
"""States come twice a second; older than this they say nothing about now."""
WINDOW_S = 10.0
"""Over which the command stream is judged."""
UNHEARD = "none heard"
"""The state of a policy that does not run, or not where we listen."""
ANSWERS = 200
"""Over so many answers the latencies are taken."""


@dataclass(frozen=True)
class Status:
    """One DiagnosticStatus: received (steady s), level 0..3, message, values."""

    received: float
    level: int
    message: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Latency:
    """One stage, in ms."""

    stage: str
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class Stream:
    """The command stream as it arrives here, over the last ten seconds."""

    rate_hz: float = 0.0
    jitter_p99_ms: float = 0.0
    max_gap_ms: float = 0.0
    silent_s: float = float("inf")


@dataclass(frozen=True)
class Age:
    """How old one input is (infinite: never seen; None: there is none), and the limit beyond which it is silent."""

    name: str
    age_s: float | None
    limit_s: float | None

    @property
    def late(self) -> bool:
        """Whether it is beyond its limit."""
        return self.age_s is not None and self.limit_s is not None and self.age_s > self.limit_s


@dataclass(frozen=True)
class View:
    """One look at the board."""

    state: str = "no news"
    level: int = 3
    in_command: str = "nobody known"
    cause: str = ""
    since_s: float | None = None
    news_age_s: float = float("inf")
    stream: Stream = Stream()
    loops: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    latency: tuple[Latency, ...] = ()
    ages: tuple[Age, ...] = ()
    missed: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)  # frames that never came whole, by camera topic
    executor: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    policy_state: str = UNHEARD
    model: Mapping[str, str] = field(default_factory=dict)
    model_name: str = ""
    publishers: tuple[str, ...] = ()
    problems: tuple[tuple[str, str, int], ...] = ()  # (who, what, level), worst first

    @property
    def heard(self) -> bool:
        """Whether any node of the runtime was heard at all."""
        return self.news_age_s < float("inf") or bool(self.loops) or self.policy_state != UNHEARD


# name on the screen, task and key in the watchdog's or policy's diagnostics, default limit's key
_WATCHDOG_AGES = (("joint states", "joint_state_age_s"), ("plan stream", "stream_age_s"), ("request", "request_age_s"),
                  ("heartbeat", "heartbeat_age_s"), ("observation", "observation_age_s"))  # fmt: skip


class Board:
    """Takes in messages; gives a :class:`View` at any time. ``period_s``: of the command stream."""

    def __init__(self, period_s: float = 0.02):
        self._period_s = period_s
        self._states: dict[str, Status] = {}
        self._tasks: dict[tuple[str, str], Status] = {}
        self._latency: deque[Mapping[str, float]] = deque(maxlen=ANSWERS)
        self._arrivals: deque[float] = deque(maxlen=2 * int(WINDOW_S / period_s))
        self._limits: dict[str, float] = {}
        self.publishers: tuple[str, ...] = ()

    def hear_state(self, node: str, status: Status) -> None:
        """Note ``<node>/state``."""
        self._states[node] = status

    def hear_diagnostics(self, name: str, status: Status) -> None:
        """Note one status of /diagnostics; ``name`` as it travels: ``[namespace/]node: task``."""
        who, separator, task = name.partition(": ")
        if separator:
            self._tasks[who.rsplit("/", 1)[-1], task] = status

    def hear_latency(self, stage_ms: Mapping[str, float]) -> None:
        """Note one ``policy/latency``."""
        self._latency.append(dict(stage_ms))

    def hear_command(self, now: float) -> None:
        """Note the arrival of a command."""
        self._arrivals.append(now)

    def hear_limit(self, key: str, limit_s: float) -> None:
        """Note a deadline (the watchdog's parameter) that an age is held against."""
        self._limits[key] = limit_s

    def view(self, now: float, ros_now: float | None = None) -> View:
        """Look. ``now``: steady seconds; ``ros_now``: seconds of the ROS clock, for how long a state has lasted."""
        watchdog = self._states.get("watchdog")
        shown: dict = {}
        if watchdog is not None:
            age = now - watchdog.received
            fresh = age <= NEWS_S
            shown = {
                "state": watchdog.message if fresh else f"{watchdog.message}?",
                "level": watchdog.level if fresh else 3,
                "in_command": watchdog.values.get("in_command", "") if fresh else "nobody known",
                "cause": watchdog.values.get("cause", "") if fresh else f"no news from the watchdog for {age:.1f} s",
                "since_s": _since(watchdog.values.get("since"), ros_now),
                "news_age_s": age,
            }
        model = self._tasks.get(("policy", "model"))
        return View(
            **shown,
            stream=self._stream(now),
            loops={who: task.values for (who, name), task in self._tasks.items() if name == "loop"},
            latency=self._latencies(),
            ages=self._ages(),
            missed=self._counts(("watchdog", "state"), "missed.", "watchdog"),
            refused={
                **self._counts(("watchdog", "state"), "refused.", "watchdog"),
                **self._executor_refusals(),
            },
            lost=self._lost(),
            executor=self._of("executor"),
            policy=self._of("policy"),
            policy_state=self._policy_state(now),
            model=model.values if model is not None else {},
            model_name=model.message if model is not None else "",
            publishers=self.publishers,
            problems=self._problems(now),
        )

    def _policy_state(self, now: float) -> str:
        policy = self._states.get("policy")
        if policy is None:
            return UNHEARD
        return policy.message if now - policy.received <= NEWS_S else "no news"

    def _of(self, node: str) -> Mapping[str, str]:
        """All values of one node, its state's over its tasks'."""
        merged: dict[str, str] = {}
        for (who, _), task in self._tasks.items():
            if who == node:
                merged |= task.values
        return merged | dict(self._states[node].values if node in self._states else {})

    def _stream(self, now: float) -> Stream:
        arrivals = np.array([t for t in self._arrivals if now - t <= WINDOW_S])
        if len(arrivals) < 2:
            return Stream(silent_s=now - self._arrivals[-1] if self._arrivals else float("inf"))
        gaps = np.diff(arrivals)
        return Stream(
            rate_hz=float(1.0 / gaps.mean()) if gaps.mean() > 0 else 0.0,
            jitter_p99_ms=float(np.percentile(np.abs(gaps - self._period_s), 99) * 1e3),
            max_gap_ms=float(gaps.max() * 1e3),
            silent_s=now - float(arrivals[-1]),
        )

    def _latencies(self) -> tuple[Latency, ...]:
        stages = dict.fromkeys(stage for answer in self._latency for stage in answer)
        rows = []
        for stage in stages:
            values = [answer[stage] for answer in self._latency if stage in answer]
            rows.append(Latency(stage, *(float(x) for x in np.percentile(values, (50, 95, 99))), float(max(values))))
        return tuple(rows)

    def _ages(self) -> tuple[Age, ...]:
        figures = self._of("watchdog")
        ages = [
            Age(name, _number(figures[key]), self._limits.get(key)) for name, key in _WATCHDOG_AGES if key in figures
        ]
        inputs = self._tasks.get(("policy", "inputs"))
        if inputs is not None:
            limit = _number(inputs.values.get("max_input_age_s"))
            prefix = "age_s."
            ages += [
                Age(key.removeprefix(prefix), _number(value), limit)
                for key, value in inputs.values.items()
                if key.startswith(prefix)
            ]
        return tuple(ages)

    def _counts(self, task: tuple[str, str], prefix: str, state: str) -> dict[str, int]:
        values = dict(self._tasks[task].values) if task in self._tasks else {}
        values |= dict(self._states[state].values) if state in self._states else {}
        found = {key.removeprefix(prefix): _number(value) for key, value in values.items() if key.startswith(prefix)}
        return {key: int(value) for key, value in found.items() if value}

    def _executor_refusals(self) -> dict[str, int]:
        found = {key.removeprefix("refused."): _number(value) for key, value in self._of("executor").items()
                 if key.startswith("refused.")}  # fmt: skip
        return {f"plan {key}": int(value) for key, value in found.items() if value}

    def _lost(self) -> dict[str, int]:
        inputs = self._tasks.get(("policy", "inputs"))
        values = inputs.values if inputs is not None else {}
        found = {key.removeprefix("camera.").removesuffix(".lost"): _number(value) for key, value in values.items()
                 if key.startswith("camera.") and key.endswith(".lost")}  # fmt: skip
        return {topic: int(count) for topic, count in found.items() if count}

    def _problems(self, now: float) -> tuple[tuple[str, str, int], ...]:
        found = [
            (f"{who}: {task}", status.message, status.level)
            for (who, task), status in self._tasks.items()
            if status.level > 0 and (who, task) != ("watchdog", "state")
        ]
        # /diagnostics comes once a second: three missing ones are silence, not jitter.
        for who in {who for who, _ in self._tasks}:
            age = now - max(status.received for (other, _), status in self._tasks.items() if other == who)
            if age > 2 * NEWS_S:
                found = [row for row in found if not row[0].startswith(f"{who}:")]
                found.append((who, f"silent for {age:.0f} s", 3))
        return tuple(sorted(found, key=lambda row: (-row[2], row[0])))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text not in (None, "") else None
    except ValueError:
        return None


def _since(stamp: str | None, ros_now: float | None) -> float | None:
    began = _number(stamp)
    return None if began is None or ros_now is None else max(0.0, ros_now - began)
