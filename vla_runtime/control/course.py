"""The course: the points on the control grid that the arm will run through, from where it is being driven now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.blending import Fade, PlanStack, fade_durations
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.latency import Rolling
from vla_runtime.control.limits import Limits
from vla_runtime.control.resample import GridPlan, cubic_at
from vla_runtime.control.tracking import Course, Survey, Tracker


@dataclass(frozen=True, eq=False)
class Stretch:
    """A course over the grid points ``first`` ... ``last``."""

    first: int
    course: Course

    @property
    def last(self) -> int:
        """The last grid point."""
        return self.first + len(self.course.positions) - 1

    def rows(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities at the grid points ``first`` ... ``last``."""
        rows = slice(first - self.first, last - self.first + 1)
        return self.course.positions[rows], self.course.velocities[rows]


class Navigator:
    """Keeps the plans that may be followed and the stretch that was planned last.

    What was planned stands: a tick adds the grid points that come into its window, and begins anew only when another
    plan takes over or when the arm was driven by someone else.
    """

    def __init__(self, settings: ExecutorSettings, limits: Limits):
        self._limits = limits
        self._mixed = np.flatnonzero(~limits.discrete)
        self._tracker = Tracker(limits, settings.period_s)
        self._stack = PlanStack(limits.discrete, False, 0.0, 1)
        self._stretch: Stretch | None = None
        self._plan: GridPlan | None = None  # what is followed, without a fade
        self._bare: Survey | None = None  # the same, looked at
        self._faded: Survey | None = None  # with the fade
        self._fade: Fade | None = None
        self._before: GridPlan | None = None  # what was followed, without a fade, when that fade began
        self._taking_over = False
        self.seams = Rolling(500)
        self.retune(settings)

    @property
    def newest(self) -> GridPlan | None:
        """The plan that took over last."""
        return self._stack.plans[-1] if self._stack.plans else None

    def retune(self, settings: ExecutorSettings) -> None:
        """Go on with other settings; blending changes with the next plan."""
        self._settings = settings
        ensemble = settings.blend == "ensemble"
        plans = self._stack.plans
        self._stack = PlanStack(self._limits.discrete, ensemble, settings.ensemble_m, settings.ensemble_plans, plans)
        at_once = self._limits.discrete | (settings.blend == "cut")
        self._forward = np.where(at_once, np.inf, settings.still_speed)
        self._reach = self._limits.acceleration * np.where(at_once, 1.0, settings.catch_up_ratio)
        self._stretch = None

    def clear(self) -> None:
        """Forget the plans and the stretch."""
        self._stack.clear()
        self._stretch = self._plan = self._bare = self._faded = self._fade = self._before = None
        self._taking_over = False

    def take(self, plan: GridPlan) -> None:
        """Let this plan take over at the next tick."""
        self._stack.push(plan)
        self._plan = plan = self._stack.followed()
        times = plan.grid.period * np.arange(len(plan.positions))
        v = plan.velocities
        self._bare = self._faded = self._tracker.survey(times, plan.positions, v, v, self._forward)
        self._taking_over = True

    def stretch(
        self, now: float, position: np.ndarray, velocity: np.ndarray, first: int, last: int, ours: bool
    ) -> Stretch:
        """Return a stretch that covers the grid points ``first`` ... ``last``, all of them points of the plan.

        ``position``, ``velocity`` (n,): where the arm is being driven at ``now``; ``ours``: by what was said at the
        last tick, so that the last stretch leads there.
        """
        old = self._stretch
        # Where a grid point is too near to be sent, the curve between the others is another one.
        stands = ours and old is not None and not self._taking_over and first == self._plan.grid.at_or_after(now)
        if not stands or not old.first <= first <= old.last <= last:
            self._stretch = self._begin(now, position, velocity, first, last, ours)
        elif old.last < last:
            self._stretch = self._lengthen(old, first, last)
        return self._stretch

    def _begin(self, now, position, velocity, first: int, last: int, ours: bool) -> Stretch:
        plan, row = self._plan, first - self._plan.first
        anew = self._taking_over or not ours
        source = self._bare if anew else self._faded
        at = (now - plan.grid.origin) / plan.grid.period - plan.first
        at_p, at_v = cubic_at(at, plan.grid.period, source.positions, source.velocities)
        fade, until = None, last
        if anew:
            fade = self._fade = self._new_fade(now, position, at_p, velocity - at_v, ours)
            self._faded, self._taking_over, self._before = self._bare, False, plan
            if fade is not None:
                until = min(max(last, plan.grid.at_or_after(fade.end)), plan.last)
        rows = slice(row, row + until - first + 1)
        times = np.concatenate(([now], plan.grid.origin + plan.grid.period * np.arange(first, until + 1)))
        positions = np.concatenate((at_p[None, :], source.positions[rows]))
        velocities = np.concatenate((at_v[None, :], source.velocities[rows]))
        direction = velocities
        if fade is not None:
            added, rate = fade.at(times)
            positions, velocities = positions + added, velocities + rate
        survey = self._tracker.survey(times, positions, velocities, direction, self._forward)
        if fade is not None:
            self._faded = self._bare.patched(row, survey.since(1))
        return Stretch(first, self._tracker.follow(position, velocity, survey, 0, last - first + 1, self._reach))

    def _new_fade(self, now, position, plan_p, rate, ours: bool) -> Fade | None:
        offset = position - plan_p
        if self._taking_over:
            self.seams.add(float(np.abs(offset[self._mixed]).max(initial=0.0)))
        seconds = self._settings.takeover_s
        if seconds <= 0.0:
            return None
        left = np.full(len(offset), seconds)
        old = self._before
        if ours and self._fade is not None and self._fade.end > now and old.end >= now:
            # An offset that fades already keeps its time; what is new between the plans takes the full time.
            old_p = old.at(now)[0]
            was, new = np.abs(position - old_p), np.abs(old_p - plan_p)
            share = was / np.maximum(was + new, 1e-12)
            rest = self._fade.ends - now
            left += share * (np.minimum(rest, seconds) - seconds) * (rest > 0.0)
        durations = fade_durations(offset, rate, left, self._reach, self._limits.velocity)
        return Fade(now, offset, rate, durations * ~self._limits.discrete)

    def _lengthen(self, old: Stretch, first: int, last: int) -> Stretch:
        course, row = old.course, old.last - self._plan.first
        more = self._tracker.follow(
            course.positions[-1],
            course.velocities[-1],
            self._faded,
            row,
            row + last - old.last,
            self._reach,
            course.on_plan,
        )
        kept = first - old.first
        positions = np.concatenate((course.positions[kept:], more.positions))
        velocities = np.concatenate((course.velocities[kept:], more.velocities))
        return Stretch(first, Course(positions, velocities, more.acceleration, more.on_plan))
