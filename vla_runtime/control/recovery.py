"""When may the policy have the arm back? Good plans in a row, from more than one fresh answer, seen after the fault."""

from vla_runtime.control.watchdog_settings import WatchdogSettings


class Recovery:
    """Counts what speaks for the policy since the fallback began; one bad plan begins the count anew."""

    def __init__(self) -> None:
        self._since = 0.0
        self._ticks = 0
        self._plans: set[str] = set()
        self.released = False

    def begin(self, now: float, released: bool = False) -> None:
        """Begin to count at ``now``; ``released``: the operator has already agreed."""
        self._since, self.released = now, released
        self.bad()

    def bad(self) -> None:
        """Note a refused plan, or that none came in time."""
        self._ticks = 0
        self._plans.clear()

    def good(self, plan_id: str, observed_at: float) -> None:
        """Note a good planned trajectory; its plan counts if its observation was made after the fallback began."""
        self._ticks += 1
        if observed_at >= self._since and len(self._plans) < 64:
            self._plans.add(plan_id)

    def missing(self, settings: WatchdogSettings) -> str:
        """Say what is still missing; empty when nothing is."""
        if self._ticks < settings.recover_ticks:
            return f"{self._ticks} of {settings.recover_ticks} good planned trajectories in a row"
        if len(self._plans) < settings.recover_plans:
            return f"{len(self._plans)} of {settings.recover_plans} fresh plans"
        if settings.require_release and not self.released:
            return "waiting for the operator's release"
        return ""
