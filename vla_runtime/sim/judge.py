"""Keeps the score of one episode: what has been lifted since it began, and when."""

from vla_runtime.sim.task import LIFT_M, TIME_LIMIT_S, judge


class EpisodeJudge:
    """Watches the cubes of one episode; fed with heights as often as the caller likes.

    The verdict stands as soon as a cube is lifted: success when the named one rises above ``LIFT_M`` while no other
    one ever has, within ``TIME_LIMIT_S`` of the start.
    """

    def __init__(self, colour: str):
        self.colour = colour
        self.success = False
        self.wrong_object = False
        self.lift_time_s: float | None = None
        self.highest_m: dict[str, float] = {}

    def see(self, time_s: float, heights_m: dict[str, float]) -> bool:
        """Note the heights (m above where each cube lay) at a time since the start. Returns whether it changed."""
        before = (self.success, self.wrong_object)
        for colour, height in heights_m.items():
            self.highest_m[colour] = max(height, self.highest_m.get(colour, height))
        if time_s <= TIME_LIMIT_S:
            outcome = judge(self.highest_m, self.colour)
            self.wrong_object = self.wrong_object or outcome.wrong_object
            if outcome.success and not self.success:
                self.lift_time_s = time_s
            self.success = outcome.success
        return before != (self.success, self.wrong_object)

    @property
    def decided(self) -> bool:
        """Whether a cube has been lifted, rightly or wrongly."""
        return self.success or self.wrong_object


__all__ = ["LIFT_M", "TIME_LIMIT_S", "EpisodeJudge"]
