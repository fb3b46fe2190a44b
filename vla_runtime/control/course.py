"""The course: the points on the control grid that the arm will run through, from where it is being driven now."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vla_runtime.control.blending import Fade, PlanStack, fade_durations
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.latency import Rolling
from vla_runtime.control.limits import Limits
from vla_runtime.control.resample import Grid, GridPlan
from vla_runtime.control.tracking import Course, Tracker


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
        self._tracker = Tracker(limits, settings.period_s)
        self._stack = PlanStack(limits.discrete, False, 0.0, 1)
        self._stretch: Stretch | None = None
        self._fade: Fade | None = None
        self._taking_over = False
        self.seams = Rolling(500)
        self.retune(settings)

    @property
    def newest(self) -> GridPlan | None:
        """The plan that took over last."""
        return self._stack.newest

    def retune(self, settings: ExecutorSettings) -> None:
        """Go on with other settings."""
        self._settings = settings
        self._stack = PlanStack(
            self._limits.discrete,
            settings.blend == "ensemble",
            settings.ensemble_m,
            settings.ensemble_plans,
            self._stack.plans,
        )
        at_once = self._limits.discrete | (settings.blend == "cut")
        self._forward = np.where(at_once, np.inf, settings.still_speed)
        self._reach = self._limits.acceleration * np.where(at_once, 1.0, settings.catch_up_ratio)
        self._stretch = None

    def clear(self) -> None:
        """Forget the plans and the stretch."""
        self._stack.clear()
        self._stretch = self._fade = None
        self._taking_over = False

    def take(self, plan: GridPlan) -> None:
        """Let this plan take over at the next tick."""
        free = self._tracker.free(plan.grid.period, plan.positions, plan.velocities)
        self._stack.push(replace(plan, free=free))
        self._taking_over = True

    def stretch(
        self, now: float, position: np.ndarray, velocity: np.ndarray, grid: Grid, first: int, last: int, ours: bool
    ) -> Stretch:
        """Return a stretch that covers the grid points ``first`` ... ``last``.

        ``position``, ``velocity`` (n,): where the arm is being driven at ``now``; ``ours``: by what was said at the
        last tick, so that the last stretch leads there.
        """
        old = self._stretch
        # Where a grid point is too near to be sent, the curve between the others is another one.
        stands = ours and old is not None and not self._taking_over and old.first <= first == grid.at_or_after(now)
        if not stands or not first <= old.last <= last:
            self._stretch = self._begin(now, position, velocity, grid, first, last, ours)
        elif old.last < last:
            self._stretch = self._lengthen(old, grid, first, last)
        return self._stretch

    def _begin(self, now, position, velocity, grid: Grid, first: int, last: int, ours: bool) -> Stretch:
        at_p, at_v = self._stack.at(now, first)
        if self._taking_over or not ours:
            offset, rate = position - at_p, velocity - at_v
            seconds = self._settings.takeover_s
            if self._taking_over:
                self.seams.add(float(np.abs(np.where(self._limits.discrete, 0.0, offset)).max()))
            if seconds > 0.0:
                durations = fade_durations(offset, rate, seconds, self._reach, self._limits.velocity)
                self._fade = Fade(now, offset, rate, np.where(self._limits.discrete, 0.0, durations))
            else:
                self._fade = None
            self._taking_over = False
        times = np.array([now, *(grid.time(k) for k in range(first, last + 1))])
        plan_p, plan_v = self._stack.window(first, last)
        plan_p, plan_v = np.concatenate((at_p[None, :], plan_p)), np.concatenate((at_v[None, :], plan_v))
        return Stretch(first, self._follow(position, velocity, times, plan_p, plan_v))

    def _lengthen(self, old: Stretch, grid: Grid, first: int, last: int) -> Stretch:
        self._stack.forget_before(first)
        plan_p, plan_v = self._stack.window(old.last, last)
        begins, newest, course = grid.time(old.last), self._stack.newest, old.course
        fading = self._fade is not None and begins < self._fade.end
        row = old.last - newest.first
        if course.on_plan and not fading and self._stack.alone and newest.free[row : row + last - old.last].all():
            # On the plan, and the plan may be taken as it is. The acceleration at its end is the cubic's.
            h = grid.period
            slope = (plan_p[-1] - plan_p[-2]) / h
            acceleration = (2.0 * plan_v[-2] + 4.0 * plan_v[-1] - 6.0 * slope) / h
            more = Course(plan_p[1:], plan_v[1:], acceleration, True)
        else:
            times = np.array([grid.time(k) for k in range(old.last, last + 1)])
            more = self._follow(course.positions[-1], course.velocities[-1], times, plan_p, plan_v)
        kept = max(first - old.first, 0)
        positions = np.concatenate((course.positions[kept:], more.positions))
        velocities = np.concatenate((course.velocities[kept:], more.velocities))
        return Stretch(old.first + kept, Course(positions, velocities, more.acceleration, more.on_plan))

    def _follow(self, p, v, times, plan_p, plan_v) -> Course:
        direction = plan_v
        if self._fade is not None and times[0] < self._fade.end:
            added, rate = self._fade.at(times)
            plan_p, plan_v = plan_p + added, plan_v + rate
        return self._tracker.follow(p, v, times, plan_p, plan_v, self._reach, self._forward, direction)
