"""Holding the arm still: react harder when the measured state is lost, give way when the arm was pushed."""

from vla_runtime.control.deviation import Deviation
from vla_runtime.control.drive import Drive
from vla_runtime.control.trajectory import JointSample
from vla_runtime.control.watchdog_settings import WatchdogSettings


class Holding:
    """Looks after an arm that a fallback planner, an operator's hold or a fault has stopped or is stopping."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._pushed = Deviation(drive.limits)
        self._blind = False
        self._planner = ""
        self.gave_way = 0  # how often this hold has moved to where the arm was pushed

    def begin(self) -> None:
        """Begin a new hold."""
        self._pushed.reset()
        self.gave_way = 0

    def stop(
        self, now: float, planner: str, measured: JointSample | None, settings: WatchdogSettings, cause: str
    ) -> None:
        """Let ``planner`` have the arm; with the measured state unknown, ``blind_fallback`` instead."""
        self._blind, self._planner = measured is None, planner
        self._drive.take_over(now, settings.blind_fallback if self._blind else planner, measured, cause)

    def look_after(self, now: float, measured: JointSample | None, settings: WatchdogSettings) -> None:
        """Do what one tick of holding asks for; ``measured`` is None while the measured state is unknown."""
        if self._drive.shadow is None:
            return
        resting = self._drive.resting()
        if measured is None:
            if not self._blind and not resting:
                self.stop(now, settings.blind_fallback, None, settings, "the measured state was lost on the way")
            self._blind = True
            return
        self._blind = False
        if self._drive.left(now) and self._drive.planner == self._planner:
            self.stop(now, self._planner, measured, settings, "left on the way")
        elif resting and self.gave_way < settings.reanchor_max:
            self._give_way(now, measured, settings)

    def _give_way(self, now: float, measured: JointSample, settings: WatchdogSettings) -> None:
        """Move the hold to the measured state if the arm has been away from it for a while."""
        commanded = self._drive.shadow.positions[-1]
        tolerance, for_s = settings.reanchor_error_rad, settings.reanchor_time_s
        if self._pushed.check(now, commanded, measured.position, tolerance, for_s) is None:
            return
        discrete = self._drive.limits.discrete
        target = measured.position.copy()
        target[discrete] = commanded[discrete]
        self.gave_way += 1
        self._pushed.reset()
        self._drive.go_to(now, target, settings.reanchor_speed, "give way")
