"""Which of several watchdogs that have begun at once has the arm in the end: the one that started first.

Discovery takes seconds, so two may command before they can know of each other. Whoever then hears another's commands
stops at once, whoever that is: nobody drives on because it would be the other's turn to stop. What is decided here is
only who begins again by itself. It goes by the names that watchdogs give themselves when they start, which all of them
can hear (``instance`` in ``watchdog/state``); who begins again first listens whether anybody commands, as at every
start. Of a rival without such a name nothing is known: then nobody begins again but by a person's order.

Where both have commanded for so long that neither listens any more when they find each other, only the later one
listens again, because an ``elder`` says that it commands: it stops for what it then hears, and the elder drives on.
"""

HEARD_S = 1.0
"""How long the others are listened to before anything is decided: they say twice a second how things stand."""
DECIDED_S = 10.0
"""What is heard later than this has nothing to do with it any more."""
FRESH_S = 1.5
"""What a watchdog said of itself is how things stand for so long: it says so twice a second."""

_REMEMBERED = 32  # names; each start of a watchdog makes a new one


def instance_name(started_ns: int, random: str) -> str:
    """Return the name of a watchdog: by the system's clock at its start, then at random; the smaller began first.

    ``started_ns``: system nanoseconds; ``random``: some text, new at every start.
    """
    return f"{started_ns // 1_000_000:012x}{random}"


class Precedence:
    """What one watchdog knows of the others. One thread calls it; all times are steady seconds.

    ``instance``: the own name. ``given_way``: whether it has let go of the arm because another commands, and waits.
    """

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.given_way = False
        # Those that command, or have let go for another: name -> (when they last said so, whether they command)
        self._rivals: dict[str, tuple[float, bool]] = {}
        self._since = 0.0
        self._told = ""
        self._came_back = False

    def began(self) -> None:
        """Note an activation."""
        self.given_way, self._told = False, ""

    def settled(self) -> None:
        """Note that it has commanded for as long as others need to be found."""
        if not self.given_way:
            self._came_back = False

    def gave_way(self, now: float) -> None:
        """Note that it has commanded, has heard another and lets go of the arm."""
        self.given_way, self._since, self._told = True, now, ""

    def heard(self, at: float, instance: str, commands: bool, given_way: bool) -> None:
        """Note what a watchdog says of itself at ``at``: it commands the arm; it has let go of it for another."""
        self._rivals.pop(instance, None)
        if commands or given_way:
            self._rivals[instance] = at, commands
        while len(self._rivals) > _REMEMBERED:
            del self._rivals[next(iter(self._rivals))]

    def elder(self, now: float) -> str:
        """Return a watchdog that began before this one and says that it commands; "" where there is none."""
        fresh = [name for name, (at, commands) in self._rivals.items() if name and commands and now - at <= FRESH_S]
        first = min(fresh, default="")
        return first if first < self.instance else ""

    def decide(self, now: float) -> str:
        """Return whose the arm is: the own name to begin again, another's to wait for a person; "" while not known.

        Each answer is given once, and the own name no more than once until it has ``settled``: what has gone wrong a
        second time is a person's to look at.
        """
        if not self.given_way or not HEARD_S <= now - self._since <= DECIDED_S or self._told == self.instance:
            return ""
        rivals = [
            name for name, (at, _) in self._rivals.items() if at >= self._since and name not in ("", self.instance)
        ]
        if not rivals:
            return ""
        first = min(*rivals, self.instance)
        if first == self._told or (first == self.instance and self._came_back):
            return ""
        self._told = first
        self._came_back = self._came_back or first == self.instance
        return first
