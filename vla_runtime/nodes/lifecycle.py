"""The base of the three nodes: transitions that say why they fail, autostart, state and diagnostics."""

import time
import traceback
from collections.abc import Callable

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vla_runtime.errors import UserError
from vla_runtime.nodes.clock import SIMULATED_STEP_S, SYSTEM_STEP_S, StampClock
from vla_runtime.nodes.clock_pace import ClockPace
from vla_runtime.nodes.diagnostics import Level, Status
from vla_runtime.nodes.handover import Outbox
from vla_runtime.nodes.parameters import NodeParameters
from vla_runtime.nodes.process import Runnable
from vla_runtime.nodes.qos import LATCHED

HOUSEKEEPING_S = 0.5
STATES_PER_DIAGNOSTICS = 2
AUTOSTART_PERIOD_S = 1.0
REPEAT_REFUSAL = 10
"""A refusal that stays the same is logged again after this many attempts."""


class TransitionRefusedError(UserError):
    """A transition that cannot be made; ``retry`` says whether waiting may mend it (a camera not yet there)."""

    def __init__(self, reason: str, *, retry: bool = False):
        super().__init__(reason)
        self.retry = retry


class ManagedNode(LifecycleNode, Runnable):
    """A lifecycle node with four hooks; a subclass overrides them and nothing of the transitions.

    ``setup`` (configure), ``start`` (activate, publishers already enabled), ``halt`` (deactivate, publishers still
    enabled: the place to send the stop trajectory) and ``teardown`` (cleanup, error, shutdown; must cope with a
    half-done setup). A ``UserError`` from one of the first two refuses the transition and is logged as one line;
    anything else is logged with its traceback and leads to `unconfigured` by way of the error state.
    """

    def __init__(self, name: str, parameters: Callable[["ManagedNode"], NodeParameters]):
        super().__init__(name)
        self.refusal = ""
        self.qos_faults: dict[str, str] = {}
        self.outbox = Outbox(self)
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.parameters = parameters(self)
        simulated = self.get_parameter("use_sim_time").value
        self._simulated_time = self.get_clock().ros_time_is_active
        self._pace = ClockPace() if simulated else None
        self._out_of_pace = False
        step_s = SIMULATED_STEP_S if simulated else SYSTEM_STEP_S
        self.stamps = StampClock(self._ros_now_ns, step_s=step_s, pace=self._pace)
        self._state_publisher = self.create_publisher(DiagnosticStatus, "~/state", LATCHED)
        self._diagnostics_publisher = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._reports = 0
        self.every(HOUSEKEEPING_S, self.regularly)  # one timer for all: each wake costs a millisecond
        self._attempts = 0
        self._wanted = self.parameters["node"].autostart
        self._autostart_timer = self.every(AUTOSTART_PERIOD_S, self._autostart)
        self.outbox.post(self._autostart)

    # what a subclass overrides

    def setup(self) -> None:
        """Read the parameters, load what is needed, subscribe."""

    def start(self) -> None:
        """Begin to work."""

    def halt(self) -> None:
        """End the work; the publishers still publish."""

    def teardown(self) -> None:
        """Give back what ``setup`` took, as far as it came."""

    def describe(self) -> Status:
        """The node's state for ``~/state``."""
        return Status(self.get_name(), Level.OK, self.lifecycle_state)

    def report(self) -> list[Status]:
        """The node's tasks for /diagnostics."""
        return []

    # for subclasses

    @property
    def lifecycle_state(self) -> str:
        """`unconfigured`, `inactive`, `active`, `finalized`, or the name of the transition that runs."""
        return self._state_machine.current_state[1]

    @staticmethod
    def steady_now() -> float:
        """Steady seconds, as everything below the nodes counts them."""
        return time.monotonic()

    def _ros_now_ns(self) -> int:
        # Without /clock ROS time is the system's, and many times cheaper to read there.
        return self.get_clock().now().nanoseconds if self._simulated_time else time.time_ns()

    def every(self, period_s: float, callback: Callable[[], None]):
        """A timer on the steady clock: it fires whatever /clock does."""
        return self.create_timer(period_s, callback, clock=self._steady)

    def watch_clock(self) -> None:
        """Report a jump of the ROS clock, once."""
        jump = self.stamps.watch()
        if jump is not None:
            self.log_later("warning", str(jump))

    def qos_fault(self, text: str) -> None:
        """Note an incompatible publisher, for the log and for /diagnostics."""
        if text not in self.qos_faults.values():
            self.get_logger().error(text)
        self.qos_faults[text.split("'")[1]] = text

    def log_later(self, level: str, message: str) -> None:
        """Log from the control thread: the spinning thread writes it."""
        self.outbox.post(lambda: self._log(level, message))

    def _log(self, level: str, message: str) -> None:
        # rclpy wants one place in the source per severity.
        if level == "info":
            self.get_logger().info(message)
        elif level == "warning":
            self.get_logger().warning(message)
        else:
            self.get_logger().error(message)

    def give_up(self, reason: str) -> None:
        """End the process with an error, from any thread: whoever started it starts it anew."""
        if not self.fatal:
            self.fatal = reason
            self.outbox.post(lambda: self.get_logger().fatal(f"giving up: {reason}"))

    def publish_state(self) -> None:
        """Publish ``~/state`` now."""
        self._state_publisher.publish(self.describe().to_msg(hardware_id=self.get_namespace()))

    def regularly(self) -> None:
        """Twice a second, in the spinning thread: say how things stand."""
        self._simulated_time = self.get_clock().ros_time_is_active
        self._watch_pace()
        self.publish_state()
        self._reports += 1
        if self._reports % STATES_PER_DIAGNOSTICS == 0:
            self.publish_diagnostics()

    def _watch_pace(self) -> None:
        fault = self._pace.fault if self._pace is not None else ""
        if fault and not self._out_of_pace:
            self.get_logger().warning(fault)
        self._out_of_pace = bool(fault)

    def publish_diagnostics(self) -> None:
        """Publish /diagnostics now."""
        prefix = self.get_fully_qualified_name().lstrip("/")
        statuses = [self._own_status(), *self.report()]
        array = DiagnosticArray(status=[status.to_msg(prefix, self.get_namespace()) for status in statuses])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics_publisher.publish(array)

    def leave(self) -> None:
        """Go down in order: deactivate (which stops the arm), clean up, shut down. Called when nothing spins."""
        self._wanted = False
        if self.lifecycle_state == "active":
            self.trigger_deactivate()
        if self.lifecycle_state in ("inactive", "unconfigured"):
            self.trigger_shutdown()
        self.outbox.deliver()
        self.publish_state()

    def destroy_node(self) -> None:
        """Let go of DDS too: rclpy leaves the state machine, which holds the node and its shared memory until after."""
        super().destroy_node()
        self._state_machine.destroy_when_not_in_use()

    def _own_status(self) -> Status:
        jumps = self.stamps.jumps
        values = {"state": self.lifecycle_state, "callback_errors": self.callback_errors, "clock_jumps": jumps}
        if self.fatal or self.refusal:
            return Status("lifecycle", Level.ERROR, self.fatal or self.refusal, values)
        if self.qos_faults:
            return Status("lifecycle", Level.ERROR, "; ".join(self.qos_faults.values()), values)
        if self.callback_errors:
            return Status("lifecycle", Level.ERROR, f"{self.callback_errors} callbacks failed: see the log", values)
        if self.lifecycle_state != "active":
            return Status("lifecycle", Level.WARN, self.lifecycle_state, values)
        if self._out_of_pace:
            return Status("lifecycle", Level.WARN, self._pace.fault, values)
        return Status("lifecycle", Level.OK, "active", values)

    # transitions

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check the parameters, then ``setup``."""

        def work() -> None:
            self.parameters.check()
            self.setup()

        return self._attempt("configure", work, self.teardown, lambda: super(ManagedNode, self).on_configure(state))

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Enable the publishers, then ``start``."""

        def work() -> None:
            super(ManagedNode, self).on_activate(state)
            self.start()

        def undo() -> None:
            self.halt()
            super(ManagedNode, self).on_deactivate(state)

        return self._attempt("activate", work, undo, lambda: TransitionCallbackReturn.SUCCESS)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """``halt``, and only then silence the publishers."""
        self._wanted = False
        return self._attempt(
            "deactivate", self.halt, lambda: None, lambda: super(ManagedNode, self).on_deactivate(state)
        )

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """``teardown``."""
        self._wanted = False
        return self._attempt(
            "clean up", self.teardown, lambda: None, lambda: super(ManagedNode, self).on_cleanup(state)
        )

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """``halt`` if it was active, then ``teardown``."""
        self._wanted = False

        def work() -> None:
            if state.label == "active":
                self.halt()
            self.teardown()

        return self._attempt("shut down", work, lambda: None, lambda: super(ManagedNode, self).on_shutdown(state))

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an exception: stop, give back, and be `unconfigured` again."""
        for step in (self.halt, lambda: super(ManagedNode, self).on_deactivate(state), self.teardown):
            try:
                step()
            except Exception:
                self.get_logger().error("while cleaning up after an error:\n" + traceback.format_exc())
        return TransitionCallbackReturn.SUCCESS

    def _attempt(
        self,
        verb: str,
        work: Callable[[], None],
        undo: Callable[[], None],
        last: Callable[[], TransitionCallbackReturn],
    ) -> TransitionCallbackReturn:
        try:
            work()
        except UserError as error:
            self._refuse(verb, error)
            undo()
            result = TransitionCallbackReturn.FAILURE
        except Exception as error:
            # rclpy turns an exception in a transition into ERROR without a word.
            self.get_logger().error(f"cannot {verb}:\n{traceback.format_exc()}")
            self.refusal = f"cannot {verb}: {type(error).__name__}: {error}"
            self._wanted = False
            return TransitionCallbackReturn.ERROR
        else:
            self.refusal, self._attempts = "", 0
            result = last()
        self.stamps.restart()  # loading may have kept this thread from hearing /clock: that is no jump
        self.outbox.post(self.publish_state)
        return result

    def _refuse(self, verb: str, error: UserError) -> None:
        retry = isinstance(error, TransitionRefusedError) and error.retry
        text = f"cannot {verb}: {error}"
        self._attempts = self._attempts + 1 if text == self.refusal else 1
        self.refusal = text
        if self._attempts % REPEAT_REFUSAL == 1:
            again = " (trying again)" if retry and self._wanted else ""
            self.get_logger().error(text + again)
        if not retry:
            self._wanted = False

    def step_back(self, reason: TransitionRefusedError) -> None:
        """Deactivate for what would have refused the activation, had it been known by then."""
        if self.lifecycle_state != "active":
            return
        self.trigger_deactivate()
        self._wanted = self.parameters["node"].autostart
        self._refuse("activate", reason)
        self._autostart_timer.reset()

    def reconsider(self) -> None:
        """A parameter changed: a refusal that ended the autostart may be void now."""
        if self.refusal and self.parameters["node"].autostart and self.lifecycle_state in ("unconfigured", "inactive"):
            self._wanted = True
            self._autostart_timer.reset()

    def _autostart(self) -> None:
        """Configure and activate, as long as that is wanted: there may be no lifecycle manager."""
        if not self._wanted:
            self._autostart_timer.cancel()  # each wake costs a millisecond
            return
        if self.lifecycle_state == "unconfigured":
            self.trigger_configure()
        if self.lifecycle_state == "inactive" and self._wanted:
            self.trigger_activate()
        if self.lifecycle_state == "active":
            self._wanted = False
