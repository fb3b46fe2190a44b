"""The promises of docs/architecture.md, attacked: whatever happens in whatever order, every one is kept.

Hypothesis writes histories of faults, operators' orders and pauses; executor and watchdog live through them on
simulated time; every command is judged by what a controller would do with it and by what really happened. The number
of histories is VLA_HISTORIES: a few by default, so that all tests stay quick. The long run is
`VLA_HISTORIES=10000 pytest --timeout 0 test/control/test_watchdog_promises.py`.
"""

import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vla_runtime.control.watchdog_states import State
from vla_runtime.sim.control_world import ControlWorld
from vla_runtime.sim.fault_kinds import KINDS
from vla_runtime.sim.watchdog_rig import six_joints

HISTORIES = int(os.environ.get("VLA_HISTORIES", "12"))


class Promises(RuleBasedStateMachine):
    world: ControlWorld

    @initialize(seed=st.integers(0, 2**31 - 1))
    def begin(self, seed: int) -> None:
        self.world = ControlWorld(seed, six_joints())
        self.judged = 0

    @rule(name=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**31 - 1), share=st.floats(0.0, 1.0))
    def fault(self, name: str, seed: int, share: float) -> None:
        """Something fails; the next thing may happen while it still does."""
        lasts = KINDS[name](self.world, np.random.default_rng(seed))
        self.world.sound_at = max(self.world.sound_at, self.world.now + lasts)
        self.world.run(share * lasts)

    @rule(seconds=st.floats(0.0, 0.6))
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(order=st.sampled_from(["hold", "release", "reset"]))
    def an_operator_orders(self, order: str) -> None:
        getattr(self.world.watchdog, order)(self.world.now)

    @rule()
    def all_is_well_for_a_while(self) -> None:
        self._let_go()
        self.world.run_until(lambda: self.world.state is State.NOMINAL, 2.0)

    @invariant()
    def every_promise_is_kept(self) -> None:
        violations = self.world.truth.violations
        assert violations[self.judged :] == []
        assert self.world.truth.unfounded == 0
        assert all(switch.after_deadline_s <= 0.04 for switch in self.world.truth.switches)

    def _let_go(self) -> None:
        self.world.run(max(self.world.sound_at - self.world.now, 0.0))
        for order in (self.world.watchdog.release, self.world.watchdog.reset):
            order(self.world.now)

    def teardown(self) -> None:
        """Whatever it was: once all is sound again, the policy gets the arm back, and the arm is on its path."""
        self._let_go()
        assert self.world.run_until(lambda: self.world.state is State.NOMINAL, 6.0), self.world.watchdog.cause
        self.every_promise_is_kept()


Promises.TestCase.settings = settings(
    deadline=None,
    max_examples=HISTORIES,
    stateful_step_count=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestPromises = Promises.TestCase
