"""The watchdog: the only one that may command the arm, and the one that takes it from whoever fails.

Pure: it knows no ROS, no clock and no thread. Every call carries ``now``, steady seconds. Calls must not overlap: a
node that calls from several threads holds one lock around all of them.
"""

from collections import Counter, deque
from collections.abc import Mapping

from vla_runtime.control.deviation import Deviation
from vla_runtime.control.drive import Drive
from vla_runtime.control.fallback import BUILT_IN, PlannerContext, PlannerFactory, build_planner
from vla_runtime.control.gate import Gate, GateRefusal
from vla_runtime.control.holding import Holding
from vla_runtime.control.latency import Miss
from vla_runtime.control.limits import Limits
from vla_runtime.control.recovery import Recovery
from vla_runtime.control.rhythm import other_rhythm
from vla_runtime.control.silences import Silence, Silences
from vla_runtime.control.teleop import Teleop
from vla_runtime.control.trajectory import JointSample, Trajectory
from vla_runtime.control.watchdog_settings import WatchdogSettings
from vla_runtime.control.watchdog_states import IN_COMMAND, TRANSITIONS, Command, State, Transition

WATCHDOG_PHASE = 0.5
"""Its ticks after the executor's, as a share of the period: time for what was planned to arrive, and still before the
next point of it (``GRID_PHASE``), by ``MIN_SPACING_S`` at a period of 10 ms and by more at longer ones. So no point is
too near to be sent (at shorter periods :func:`rebased` leaves it out), and a new plan takes over where the last command
still leads."""
_LOGGED = 256  # misses and transitions kept


class Watchdog:
    """The gate and the state machine of docs/architecture.md, "Watchdog".

    Args:
        settings: the parameters.
        limits: of the controller's joints, in the controller's order.
        planners: fallback planners by name, as from :func:`vla_runtime.control.fallback.installed_planners`; the
            built-in ones by default.
        poses: named poses for ``retreat``: name -> {joint: rad}.

    Raises:
        UserError: if the settings name a planner or a pose that does not exist.
    """

    def __init__(
        self,
        settings: WatchdogSettings,
        limits: Limits,
        planners: Mapping[str, PlannerFactory] | None = None,
        poses: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        context = PlannerContext(
            limits=limits,
            step_s=settings.brake_step_s,
            gentle_fraction=settings.gentle_fraction,
            retreat=settings.retreat_poses,
            retreat_speed=settings.retreat_speed,
            poses=poses,
        )
        factories = BUILT_IN if planners is None else planners
        names = dict.fromkeys(("stop", "hold", settings.fallback, settings.blind_fallback))
        self.settings = settings
        self.limits = limits
        self.state = State.INACTIVE
        self.cause = "not activated"
        self.since = 0.0
        self.silences = Silences(settings, len(limits))
        self.misses: deque[Miss] = deque(maxlen=_LOGGED)
        self.transitions: deque[Transition] = deque(maxlen=_LOGGED)
        self.missed: Counter[str] = Counter()  # by stage
        self.refused: Counter[str] = Counter()  # planned and teleop trajectories, by reason
        self.passed: Counter[tuple[State, State]] = Counter()
        self._gate = Gate(limits, settings)
        self.drive = Drive(self._gate, {name: build_planner(name, factories, context) for name in names})
        self._teleop = Teleop(self._gate, self.drive)
        self.recovery = Recovery()
        self._tracking = Deviation(limits)
        self.holding = Holding(self.drive)
        self._fallbacks: deque[float] = deque(maxlen=1000)
        self._orders: list[str] = []  # what operators have asked for since the last tick
        self._refusal: GateRefusal | None = None  # of this tick's planned trajectory
        self._refused_as = ""
        self.last_refusal = ""  # of a planned or a teleop trajectory: joint, value, limit
        self._unfit = ""  # why the planned trajectories since the last good one were refused, if any were
        self._heard: Trajectory | None = None  # the newest planned trajectory, good or not
        self._transition: Transition | None = None
        self._flush = False

    # What the watchdog hears

    def saw_request(self, now: float, request_id: str) -> None:
        """Note a ``plan_request``."""
        self.silences.policy.saw_request(now, request_id)

    def saw_answer(self, now: float, request_id: str, t0: float) -> None:
        """Note an ``action_chunk``: the request it answers, and the steady seconds of its oldest observation."""
        self.silences.policy.saw_answer(now, request_id, t0)

    def saw_heartbeat(self, now: float, status: str) -> None:
        """Note a ``heartbeat``: ``ready``, ``warming`` or ``error: ...``."""
        self.silences.policy.saw_heartbeat(now, status)

    def offer_teleop(self, now: float, trajectory: Trajectory) -> None:
        """Note an operator's trajectory; the next tick judges it."""
        self._teleop.offer(now, trajectory)

    def unsaid(self) -> None:
        """Note that the last command was never sent, its process was stopped: the arm follows the one before."""
        self.drive.unsay()

    # What operators and the node's life cycle ask for

    def activate(self, now: float) -> None:
        """Begin to watch; nothing is published before the first good plan.

        Raises:
            ValueError: if it is active already.
        """
        if self.state is not State.INACTIVE:
            raise ValueError(f"the watchdog is active already, in state {self.state}")
        self.drive.forget()
        self.silences = Silences(self.settings, len(self.limits))
        self._heard = None
        self._orders.clear()
        self._teleop.forget()
        self._fallbacks.clear()
        self._go(now, State.WARMUP, "waiting for the first good plan")

    def stop(self, now: float, cause: str) -> Command:
        """Stop watching. Returns the last command, to be published before the node goes quiet: a stop."""
        if self.state is State.INACTIVE:
            return self._command(None)
        last = None
        if self.drive.abandoned(now):
            self.drive.forget()
        if self.drive.shadow is not None:
            self._take_over(now, "stop", cause)
            last = self.drive.command(now)
        self._flush = IN_COMMAND[self.state] == "policy"
        self._go(now, State.INACTIVE, cause)
        return self._command(last)

    def hold(self, now: float) -> str:
        """Stop the arm at the next tick and keep it until released; returns a reason if that cannot be, else ""."""
        return self._order("hold", self.state in (State.INACTIVE, State.FAULT))

    def release(self, now: float) -> str:
        """Let go of a hold or of teleop, or agree to the policy's return; returns a reason if that means nothing."""
        letting_go = self.state in (State.HOLD, State.TELEOP, State.FALLBACK) or "hold" in self._orders
        return self._order("release", not letting_go)

    def reset(self, now: float) -> str:
        """Leave FAULT; the policy has the arm back only by way of a recovery. Returns a reason if there is no fault."""
        return self._order("reset", self.state is not State.FAULT)

    def retune(self, settings: WatchdogSettings) -> None:
        """Use other values from the next tick on; planners and their parameters stay as they were built."""
        self.settings = self._gate.settings = self.silences.settings = settings

    # The tick

    def tick(self, now: float, joints: JointSample | None, planned: Trajectory | None) -> Command:
        """Decide what the arm is told now.

        Args:
            now: steady seconds.
            joints: the newest joint state there is, the same one again if none came.
            planned: the newest planned trajectory that came since the last tick, or None.
        """
        self.silences.joints.saw(now, joints)
        if self.state is State.INACTIVE:
            return self._command(None)
        if self.drive.abandoned(now):
            self._wake(now)
        self._obey(now)
        offered = self._judge(now, planned)
        self._listen_to_operator(now)
        if self.state is State.WARMUP:
            self._warm_up(now, offered)
        elif self.state in (State.NOMINAL, State.COASTING):
            self._run_policy(now, offered)
        elif self.state is State.TELEOP:
            self._run_teleop(now)
        else:
            self.holding.look_after(now, self._measured(now), self.settings)
            if self.state is State.FALLBACK:
                self._recover(now, offered)
        due = self.state is not State.WARMUP and self.drive.motion is not None
        return self._command(self.drive.command(now) if due else None)

    def _judge(self, now: float, planned: Trajectory | None) -> Trajectory | None:
        """Return the planned trajectory as a command that may be given now, or None."""
        self._refusal = None
        if planned is not None:
            self._heard = planned
        if planned is None or self.state in (State.HOLD, State.TELEOP, State.FAULT):
            return None
        fitted = (
            self._gate.form(now, planned, self.settings.stream_deadline_s)
            or self._provenance(now, planned.plan_id)
            or self._fit(now, planned)
        )
        if isinstance(fitted, GateRefusal):
            self._refuse(now, "gate", fitted, max(now - planned.start, 0.0))
            self._refusal, self._unfit = fitted, f"refused: {fitted.text}"
            return None
        self._refused_as = self._unfit = ""
        self.silences.accepted(now, planned.start, planned.plan_id)
        return fitted

    def _provenance(self, now: float, plan_id: str) -> GateRefusal | None:
        """Check the plan behind a planned trajectory, by what this watchdog itself has heard of it."""
        observed_at = self.silences.policy.observed_at(plan_id)
        if observed_at is None:
            return GateRefusal("unknown_plan", f"follows plan '{plan_id}', whose answer never came by here")
        limit = self.settings.max_observation_age_s
        if now - observed_at > limit:
            text = f"plan {plan_id} comes from an observation of {now - observed_at:.3f} s ago (limit {limit} s)"
            return GateRefusal("old_observation", text)
        return None

    def _fit(self, now: float, planned: Trajectory) -> Trajectory | GateRefusal:
        measured = self._measured(now)
        if self.drive.shadow is None and measured is None:
            return GateRefusal("blind", "nothing was commanded yet and the measured state is unknown")
        return self.drive.fit(now, planned, None if measured is None else measured.position)

    def _warm_up(self, now: float, offered: Trajectory | None) -> None:
        if offered is None:
            self.cause = self._why_not_armed(now)
            return
        grave = self.silences.gravest(now)
        if grave is not None:
            self.cause = grave.text
            return
        self.drive.follow(offered)
        self._go(now, State.NOMINAL, f"first good plan, {self.silences.plan_id}")

    def _why_not_armed(self, now: float) -> str:
        policy = self.silences.policy
        joints = self.silences.joint_states(now)
        if joints is not None:
            return f"nothing published: {joints.text}"
        if policy.failed or policy.warming:
            return f"nothing published: the policy says '{policy.status}'"
        if self._refusal is not None:
            rhythm = self.other_rhythm
            return f"nothing published: planned trajectory refused, {self._refusal.text}" + (rhythm and f"; {rhythm}")
        if policy.answers == 0:
            return "nothing published: no plan was answered yet"
        return "nothing published: no planned trajectory yet"

    def _run_policy(self, now: float, offered: Trajectory | None) -> None:
        grave = self.silences.gravest(now)
        if grave is not None:
            self._fall(now, grave)
            return
        if offered is not None:
            self.drive.follow(offered)
        if self._off_track(now):
            return
        late = self.silences.answer(now)
        if late is not None and self.state is State.NOMINAL:
            self._miss(now, late.stage, late.age_s, late.text)
            self._go(now, State.COASTING, late.text)
        elif late is None and self.state is State.COASTING:
            self._go(now, State.NOMINAL, "the answer came")

    def _run_teleop(self, now: float) -> None:
        blind = self.silences.joint_states(now)
        silent = self._teleop.silence(now, self.settings.teleop_timeout_s)
        if blind is not None:
            self._fall(now, blind)
        elif silent is not None:
            self._end_teleop(now, silent.text)
        else:
            self._off_track(now)

    def _recover(self, now: float, offered: Trajectory | None) -> None:
        recovery, silences = self.recovery, self.silences
        if offered is not None:
            recovery.good(silences.plan_id, silences.policy.observed_at(silences.plan_id))
        elif self._refusal is not None or silences.stream(now) is not None:
            recovery.bad()
        if offered is None or recovery.missing(self.settings):
            return
        if silences.gravest(now) is None and silences.answer(now) is None:
            self.drive.follow(offered)
            self._go(now, State.NOMINAL, "recovered")

    # Changes of state

    def _go(self, now: float, target: State, cause: str) -> None:
        """Change the state; a way that is not in the table of transitions is a bug of this class."""
        source = self.state
        if target not in TRANSITIONS[source]:
            raise AssertionError(f"{source} -> {target} ({cause}) is not in the table of transitions")
        self.passed[source, target] += 1
        self._flush = self._flush or target in (State.HOLD, State.TELEOP, State.FAULT)
        self._transition = Transition(now, source, target, cause, self.passed[source, target])
        self.transitions.append(self._transition)
        self.state, self.cause, self.since = target, cause, now
        self._tracking.reset()
        self.holding.begin()

    def _wake(self, now: float) -> None:
        """Begin anew after a long sleep: where the arm was left says nothing of where it is now.

        Nothing is commanded until the policy has proved itself, or an operator takes over: from the measured state.
        """
        cause = f"nothing was commanded for {now - self.drive.shadow.start:.3f} s: this process did not run"
        self.drive.forget()
        if self.state in (State.NOMINAL, State.COASTING, State.TELEOP):
            self._go(now, State.FALLBACK, cause)
        self.recovery.begin(now)

    def _fall(self, now: float, silence: Silence) -> None:
        """Take the arm from whoever has it."""
        cause = silence.text
        if silence.stage == "stream":
            cause += "".join(f"; {why}" for why in (self._unfit, self.other_rhythm) if why)
        self._miss(now, silence.stage, silence.age_s, cause)
        self._go(now, State.FALLBACK, cause)
        self._take_over(now, self.settings.fallback, cause)
        self.recovery.begin(now)
        self._fallbacks.append(now)
        most, window = self.settings.max_fallbacks, self.settings.max_fallbacks_window_s
        recent = sum(now - at <= window for at in self._fallbacks)
        if most and recent >= most:
            self._go(now, State.FAULT, f"{recent} fallbacks within {window:g} s, the last: {cause}")

    def _end_teleop(self, now: float, cause: str) -> None:
        self._go(now, State.FALLBACK, cause)
        self._take_over(now, "hold", cause)
        self.recovery.begin(now)

    def _off_track(self, now: float) -> bool:
        """Latch a fault if the arm does not follow; say whether it was so."""
        measured = self._measured(now)
        commanded = None if measured is None else self.drive.commanded_at(measured.t)
        if commanded is None:
            return False
        settings = self.settings
        apart = self._tracking.check(
            now, commanded, measured.position, settings.tracking_error_rad, settings.tracking_time_s
        )
        if apart is None:
            return False
        cause = f"the arm does not follow: {apart} (limit {settings.tracking_error_rad} rad)"
        self._miss(now, "tracking", settings.tracking_time_s, cause)
        self._go(now, State.FAULT, cause)
        self._take_over(now, "stop", cause)
        return True

    def _take_over(self, now: float, planner: str, cause: str) -> None:
        self.holding.stop(now, planner, self._measured(now), self.settings, cause)

    # Operators

    def _order(self, what: str, impossible: bool) -> str:
        if impossible:
            return f"'{what}' means nothing in state {self.state} ({self.cause})"
        self._orders.append(what)
        return ""

    def _obey(self, now: float) -> None:
        """Do what operators have asked for since the last tick: between two ticks the arm follows the last command."""
        orders, self._orders = self._orders, []
        for order in orders:
            if order == "hold" and self.state not in (State.HOLD, State.FAULT):
                self._go(now, State.HOLD, "held by an operator")
                if self.drive.shadow is not None:
                    self._take_over(now, "hold", self.cause)
            elif order == "release" and self.state is State.HOLD:
                armed = self.drive.shadow is not None
                self._go(now, State.FALLBACK if armed else State.WARMUP, "released by an operator")
                self.recovery.begin(now, released=True)
            elif order == "release" and self.state is State.TELEOP:
                self._teleop.mute()
                self._end_teleop(now, "the operator is done")
                self.recovery.released = True
            elif order == "release" and self.state is State.FALLBACK:
                self.recovery.released = True
            elif order == "reset" and self.state is State.FAULT:
                self._fallbacks.clear()
                armed = self.drive.shadow is not None
                self._go(now, State.FALLBACK if armed else State.WARMUP, "reset by an operator")
                self.recovery.begin(now)

    def _listen_to_operator(self, now: float) -> None:
        settings = self.settings
        allowed = settings.teleop_enabled and self.state not in (State.HOLD, State.FAULT)
        refusal = self._teleop.listen(now, allowed, self._measured(now), settings)
        if refusal is not None:
            self._refuse(now, "teleop", refusal, 0.0)
        elif self._teleop.heard_now and self.state is not State.TELEOP:
            self._go(now, State.TELEOP, "an operator drives")

    # What is told to others

    @property
    def other_rhythm(self) -> str:
        """That who plans was started with another control period, and what to do; "" if it does not seem so."""
        return other_rhythm(self._heard, self.settings.period_s)

    def _measured(self, now: float) -> JointSample | None:
        """Return the newest joint state, if it is fresh enough to be believed."""
        joints = self.silences.joints
        return joints.last if joints.fresh(now, self.settings.joint_state_deadline_s) else None

    def _miss(self, now: float, stage: str, age_s: float, cause: str) -> None:
        self.missed[stage] += 1
        self.misses.append(Miss(now, cause, age_s, stage))

    def _refuse(self, now: float, stage: str, refusal: GateRefusal, age_s: float) -> None:
        """Count a refusal, and log it unless the one before was of the same kind: the log is short."""
        self.refused[refusal.reason] += 1
        self.last_refusal = refusal.text
        if refusal.reason != self._refused_as:
            self._miss(now, stage, age_s, refusal.text)
        self._refused_as = refusal.reason

    def _command(self, trajectory: Trajectory | None) -> Command:
        in_command = "none" if trajectory is None else IN_COMMAND[self.state]
        command = Command(trajectory, self.state, self.cause, in_command, self._transition, self._flush)
        self._transition, self._flush = None, False
        return command
