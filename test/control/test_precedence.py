"""Two watchdogs that begin at once: both let go of the arm when they hear each other, and exactly one comes back.

Here a model of what the node does with `Precedence` (activation, ears, states twice a second, autostart), for any
offsets and delays of discovery; `test/system/test_nodes_start.py` has two real ones.
"""

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.control.precedence import DECIDED_S, FRESH_S, HEARD_S, Precedence, instance_name

STEP_S = 0.02
SETTLE_S = 0.4  # a new subscription is not heard yet: nodes/publishers.py
LISTEN_S = 0.7
EARS_S = 5.0
STATE_S = 0.5
AGAIN_S = 1.0


class Watchdog:
    """One node. ``discovers``: name of another -> when its messages begin to be heard here, steady seconds.

    ``decides``: whether it does what `Precedence` says; without, it only stops for whom it hears.
    """

    def __init__(self, start: float, random: str, phase: float, slow_s: float, decides: bool) -> None:
        self.name = instance_name(round(start * 1e9), random)
        self.start, self.phase, self.slow_s, self.decides = start, phase, slow_s, decides
        self.discovers: dict[str, float] = {}
        self.precedence = Precedence(self.name)
        self.state, self.since = "waiting", start  # waiting, listening, silent (WARMUP), commanding, stopping, over
        self.ears_until = math.inf
        self.said: list[tuple[float, bool, bool]] = []
        self.read_until = 0.0
        self.told: list[str] = []
        self.spoke = False  # a moment ago: what others hear now
        self.commanded_at = math.inf

    @property
    def commands(self) -> bool:
        return self.state in ("commanding", "stopping")

    def go(self, now: float, state: str) -> None:
        self.state, self.since = state, now

    def hears(self, now: float, others: list["Watchdog"]) -> bool:
        return any(other.spoke and now >= self.discovers[other.name] for other in others)

    def tick(self, now: float, others: list["Watchdog"], plan_at: float) -> None:
        """What the control thread does, and the activation before it."""
        heard = self.hears(now, others)
        if self.state == "waiting" and now >= self.since:
            self.go(now, "listening")
        elif self.state == "listening":
            if heard and now - self.since >= SETTLE_S:
                self.go(now + AGAIN_S, "waiting")
            elif now - self.since >= LISTEN_S:
                self.precedence.began()
                self.ears_until = math.inf
                self.go(now, "silent")
        elif self.state == "silent":
            if heard:
                self.go(now + AGAIN_S, "waiting")
            elif now >= plan_at:
                self.ears_until, self.commanded_at = now + EARS_S, min(now, self.commanded_at)
                self.go(now, "commanding")
        elif self.state == "commanding" and heard and now < self.ears_until:
            self.go(now, "stopping")  # the spinning thread does it, a little later
        elif self.state == "stopping" and now - self.since >= self.slow_s:
            self.precedence.gave_way(now)
            self.go(now, "over")

    def housekeeping(self, now: float, others: list["Watchdog"]) -> None:
        """Twice a second: say how things stand, hear the others, decide."""
        self.said.append((now, self.commands, self.precedence.given_way))
        for other in others:
            for at, commands, given_way in other.said:
                if self.read_until <= at and now >= self.discovers[other.name]:
                    self.precedence.heard(at, other.name, commands, given_way)
        self.precedence.heard(now, self.name, self.commands, self.precedence.given_way)  # its own word comes back
        self.read_until = now
        if now > self.ears_until + 1.0:
            self.precedence.settled()
            if self.decides and self.commands and self.precedence.elder(now):
                self.ears_until = now + EARS_S
        first = self.precedence.decide(now)
        if first:
            self.told.append(first)
        if first == self.name and self.state == "over" and self.decides:
            self.go(now + AGAIN_S, "waiting")


@dataclass
class Outcome:
    driving: int  # at the end
    together_s: float  # how long two or more drove, in all
    stopped: int
    watchdogs: list[Watchdog]


def live(watchdogs: list[Watchdog], plan_at: float, until: float) -> Outcome:
    together = 0
    for k in range(round(until / STEP_S)):
        now = k * STEP_S
        up = [one for one in watchdogs if now >= one.start]
        for one in up:
            one.spoke = one.commands
        for one in up:
            others = [other for other in up if other is not one]
            one.tick(now, others, plan_at)
            if (now - one.start - one.phase) % STATE_S < STEP_S:
                one.housekeeping(now, others)
        together += sum(one.commands for one in watchdogs) > 1
    stopped = sum(one.state == "over" for one in watchdogs)
    return Outcome(sum(one.commands for one in watchdogs), together * STEP_S, stopped, watchdogs)


def some(starts, phases, slow, delays, decides: bool) -> list[Watchdog]:
    """``delays``: of the discovery of each by each other, in order, s."""
    made = [
        Watchdog(start, f"{17 * i:04x}", phase, slow_s, decides)
        for i, (start, phase, slow_s) in enumerate(zip(starts, phases, slow))
    ]
    for (one, other), delay in zip(itertools.permutations(made, 2), delays):
        one.discovers[other.name] = max(one.start, other.start) + delay
    return made


offsets, phases, slow = st.floats(0.0, 10.0), st.floats(0.0, 0.5), st.floats(0.0, 0.1)


@given(
    starts=st.tuples(offsets, offsets),
    plan_at=st.floats(0.0, 15.0),
    phases=st.tuples(phases, phases),
    slow=st.tuples(slow, slow),
    delays=st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)),
)
@settings(max_examples=200)
def test_exactly_one_of_two_has_the_arm_and_never_do_two_for_longer_than_if_nothing_were_decided(
    starts, plan_at, phases, slow, delays
):
    after = live(some(starts, phases, slow, delays, True), plan_at, 35.0)
    before = live(some(starts, phases, slow, delays, False), plan_at, 35.0)
    assert after.driving == 1
    assert after.together_s <= before.together_s + 1e-9
    for one in after.watchdogs:
        if one.state == "over":
            (first,) = {other.name for other in after.watchdogs if other is not one}
            assert one.told[-1] == first and first < one.name


@given(
    starts=st.tuples(offsets, offsets, offsets),
    plan_at=st.floats(0.0, 15.0),
    phases=st.tuples(phases, phases, phases),
    slow=st.tuples(slow, slow, slow),
    delays=st.tuples(*[st.floats(0.0, 10.0)] * 6),
)
@settings(max_examples=60)
def test_of_three_at_most_one_has_the_arm(starts, plan_at, phases, slow, delays):
    after = live(some(starts, phases, slow, delays, True), plan_at, 40.0)
    assert after.driving <= 1


def test_the_first_of_two_that_command_at_once_comes_back_and_the_other_says_for_whom_it_waits():
    late, early = some((3.0, 2.5), (0.1, 0.2), (0.0, 0.0), (0.0, 0.0), True)
    before = live(some((3.0, 2.5), (0.1, 0.2), (0.0, 0.0), (0.0, 0.0), False), 8.0, 20.0)
    after = live([late, early], 8.0, 20.0)
    assert (before.driving, before.stopped) == (0, 2)
    assert early.state == "commanding" and late.state == "over"
    assert early.told == [early.name] and late.told == [early.name]
    assert after.together_s == before.together_s <= 3 * STEP_S


@given(
    plan_at=st.floats(0.0, 8.0),
    phases=st.tuples(phases, phases),
    delays=st.tuples(st.floats(6.5, 10.0), st.floats(6.5, 10.0)),
)
@settings(max_examples=60)
def test_two_that_find_each_other_when_neither_listens_any_more(plan_at, phases, delays):
    """They drove on together: only /diagnostics said so."""
    starts = (0.1, 0.0)
    before = live(some(starts, phases, (0.0, 0.0), delays, False), plan_at, 30.0)
    late, early = some(starts, phases, (0.0, 0.0), delays, True)
    after = live([late, early], plan_at, 30.0)
    if before.driving == 2:
        assert (early.state, late.state) == ("commanding", "over")
        assert early.told == [] and late.told == [early.name]
        knows = late.discovers[early.name]
        assert after.together_s <= max(knows, late.commanded_at + EARS_S + 1.0) - late.commanded_at + 3 * STATE_S


# Precedence alone


def gave_way(instance="b", at=100.0) -> Precedence:
    precedence = Precedence(instance)
    precedence.began()
    precedence.gave_way(at)
    return precedence


def test_names_are_in_the_order_of_the_starts():
    starts = [0, 999_999, 10**6, 1_790_000_000 * 10**9, 1_790_000_000 * 10**9 + 2 * 10**6]
    names = [instance_name(at, random) for at, random in zip(starts, ("b", "c", "a", "9", "1"))]
    assert names == sorted(names) and len(set(names)) == 5


def test_nothing_is_decided_without_a_rival_that_is_a_watchdog():
    """A bag that is played, a controller of one's own: a person looks, as for every publisher without a name."""
    precedence = gave_way()
    precedence.heard(100.6, "b", True, False)  # its own word
    precedence.heard(100.6, "", True, False)  # somebody without a name
    precedence.heard(100.6, "z", False, False)  # a watchdog that waits for its turn and has never commanded
    assert {precedence.decide(100.0 + 0.1 * k) for k in range(200)} == {""}


@pytest.mark.parametrize("at", [99.9, 100.0 + DECIDED_S + 0.1])
def test_what_was_heard_before_or_long_after_does_not_count(at):
    precedence = gave_way()
    if at < 100.0:
        precedence = Precedence("b")
        precedence.heard(at, "c", True, False)
        precedence.gave_way(100.0)
        assert precedence.decide(102.0) == ""
    else:
        precedence.heard(at, "c", True, False)
        assert precedence.decide(at + 0.1) == ""


def test_a_rival_that_took_its_word_back_is_none():
    precedence = gave_way()
    precedence.heard(100.2, "c", True, False)
    precedence.heard(100.7, "c", False, False)
    assert precedence.decide(102.0) == ""


def test_nobody_is_called_before_all_could_be_heard():
    precedence = gave_way()
    precedence.heard(100.2, "c", False, True)
    assert precedence.decide(100.0 + 0.9 * HEARD_S) == ""
    precedence.heard(100.95, "a", False, True)
    assert precedence.decide(100.0 + HEARD_S) == "a"
    assert precedence.decide(101.5) == ""  # told once


def test_it_comes_back_by_itself_once_and_again_only_when_it_had_settled():
    precedence = gave_way()
    precedence.heard(100.5, "c", False, True)
    assert precedence.decide(101.2) == "b"
    assert precedence.decide(101.3) == ""
    precedence.began()
    assert not precedence.given_way
    precedence.gave_way(104.0)
    precedence.heard(104.5, "c", True, False)
    precedence.settled()  # the time of the ears passes while it waits
    assert precedence.decide(105.2) == ""
    precedence.began()
    precedence.settled()
    precedence.gave_way(200.0)
    precedence.heard(200.5, "c", True, False)
    assert precedence.decide(201.5) == "b"


def test_an_elder_is_one_that_began_before_and_says_now_that_it_commands():
    precedence = Precedence("m")
    for name, commands, gave_way in (("z", True, False), ("m", True, False), ("", True, False), ("b", False, True)):
        precedence.heard(100.0, name, commands, gave_way)
    assert precedence.elder(100.1) == ""
    precedence.heard(100.0, "c", True, False)
    precedence.heard(100.2, "d", True, False)
    assert precedence.elder(100.3) == "c"
    assert precedence.elder(100.1 + FRESH_S) == "d"  # the other one was killed
    precedence.heard(101.6, "d", False, False)
    assert precedence.elder(101.6) == ""


def test_whoever_speaks_on_that_topic_memory_stays_bounded():
    precedence = Precedence("m")
    for k in range(10_000):
        precedence.heard(0.01 * k, f"{k:04x}", True, False)
    assert len(precedence._rivals) <= 64
    assert precedence.elder(100.0) == f"{10_000 - 32:04x}"
