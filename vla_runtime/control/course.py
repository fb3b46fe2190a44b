"""The course: the points on the control grid that the arm will run through, from where it is being driven now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_runtime.control.blending import Fade, PlanStack, fade_duration
from vla_runtime.control.executor_settings import ExecutorSettings
from vla_runtime.control.latency import Rolling
from vla_runtime.control.limits import Limits
from vla_runtime.control.resample import GridPlan
from vla_runtime.control.tracking import Course, Survey, Tracker, direction


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


@dataclass(frozen=True, eq=False)
class _Faded:
    """The plan's rows with the fade: row i belongs to the grid point ``origin + i``, up to the point ``until``.

    Where planning began between two grid points, row 0 is that instant.
    """

    origin: int
    until: int
    survey: Survey


class Navigator:
    """Keeps the plans that may be followed and the stretch that was planned last.

    What was planned stands: a tick adds the grid points that come into its window. A new plan takes over from the grid
    point at which the next message goes on, and that is worked out when the plan arrives, so that a tick has little to
    do. Only where the arm was driven by someone else, or a tick did not come in time, is a stretch begun anew in the
    tick.
    """

    def __init__(self, settings: ExecutorSettings, limits: Limits):
        self._limits = limits
        self._mixed = (~limits.discrete).tolist()
        self._speed_list = limits.velocity.tolist()
        self._tracker = Tracker(limits, settings.period_s)
        self._stack = PlanStack(limits.discrete, False, 0.0, 1)
        self._stretch: Stretch | None = None
        self._plan: GridPlan | None = None  # what is followed, without a fade
        self._bare: Survey | None = None  # the same, looked at
        self._faded: _Faded | None = None
        self._fade: Fade | None = None
        self._change: np.ndarray | None = None  # from the plan before to this one, where it takes over
        self._taking_over = False
        self._joint: int | None = None  # the grid point at which a plan takes over of which no tick has spoken yet
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
        self._reach_list = self._reach.tolist()
        self._stretch = None

    def clear(self) -> None:
        """Forget the plans and the stretch."""
        self._stack.clear()
        self._stretch = self._plan = self._bare = self._faded = self._fade = self._change = self._joint = None
        self._taking_over = False

    def take(self, plan: GridPlan, first: int, ours: bool) -> None:
        """Let this plan take over from the grid point ``first`` on: the one at which the next message goes on.

        ``ours``: the arm is being driven by what was said last.
        """
        old = self._plan
        self._stack.push(plan)
        self._plan = plan = self._stack.followed()
        times = plan.grid.period * np.arange(len(plan.positions))
        ahead = direction(plan.velocities, self._forward)
        self._bare = self._tracker.survey(times, plan.positions, plan.velocities, ahead)
        self._change = None
        if old is not None and old.first <= first <= old.last and plan.first <= first <= plan.last:
            self._change = plan.positions[first - plan.first] - old.positions[first - old.first]
        self._taking_over = True
        stretch = self._stretch
        if self._joint not in (None, first):
            return  # the joint of a plan before this one was missed: the tick begins anew
        if ours and stretch is not None and stretch.first <= first <= stretch.last and plan.first <= first < plan.last:
            self._splice(stretch, first)

    def stretch(
        self, now: float, position: np.ndarray, velocity: np.ndarray, first: int, last: int, ours: bool
    ) -> Stretch:
        """Return a stretch that covers the grid points ``first`` ... ``last``, all of them points of the plan.

        ``position``, ``velocity`` (n,): where the arm is being driven at ``now``; ``ours``: by what was said at the
        last tick, so that the last stretch leads there.
        """
        old = self._stretch
        if self._joint is not None and first > self._joint:
            self._taking_over = True  # the tick came too late: the arm went on past the joint on the plan before
        self._joint = None
        # Where a grid point is too near to be sent, the curve between the others is another one.
        stands = ours and old is not None and not self._taking_over and first == self._plan.grid.at_or_after(now)
        if not stands or not old.first <= first <= old.last <= last:
            self._stretch = self._begin(now, position, velocity, first, last, ours)
        elif old.last < last:
            self._stretch = self._lengthen(old, first, last)
        return self._stretch

    def _splice(self, stretch: Stretch, first: int) -> None:
        """Let the plan take over at a grid point of the stretch; what is before stays."""
        plan, bare, row = self._plan, self._bare, first - self._plan.first
        position, velocity = (rows[0] for rows in stretch.rows(first, first))
        fade = self._new_fade(
            plan.grid.time(first), position - bare.positions[row], velocity - bare.velocities[row], True
        )
        last = min(stretch.last, plan.last) if stretch.last > first else first + 1
        until = last if fade is None else min(max(last, plan.grid.at_or_after(fade.end)), plan.last)
        survey = bare.rows(row, row + until - first)
        if fade is not None:
            times = plan.grid.origin + plan.grid.period * np.arange(first, until + 1)
            added, rate = fade.at(times)
            survey = self._tracker.survey(times, survey.positions + added, survey.velocities + rate, survey.ahead)
        self._fade, self._faded = fade, _Faded(first, until, survey)
        course = self._tracker.follow(position, velocity, survey, 0, last - first, self._reach)
        before, speeds = stretch.rows(stretch.first, first)
        positions, velocities = np.concatenate((before, course.positions)), np.concatenate((speeds, course.velocities))
        self._stretch = Stretch(stretch.first, Course(positions, velocities, course.acceleration, course.on_plan))
        self._taking_over, self._joint = False, first

    def _begin(self, now, position, velocity, first: int, last: int, ours: bool) -> Stretch:
        """Plan anew from a state: fade from there to the plan, or go on with the fade that there is."""
        plan, bare, row = self._plan, self._bare, first - self._plan.first
        at_p, at_v = plan.at(now)
        if self._taking_over or not ours:
            self._fade = self._new_fade(now, position - at_p, velocity - at_v, ours)
            self._taking_over = False
        fade, until = self._fade, last
        if fade is not None and fade.end > now:
            until = min(max(last, plan.grid.at_or_after(fade.end)), plan.last)
        rows = slice(row, row + until - first + 1)
        times = np.concatenate(([now], plan.grid.origin + plan.grid.period * np.arange(first, until + 1)))
        positions = np.concatenate((at_p[None, :], bare.positions[rows]))
        velocities = np.concatenate((at_v[None, :], bare.velocities[rows]))
        if fade is not None and fade.end > now:
            added, rate = fade.at(times)
            positions += added
            velocities += rate
        # The step from now on is part of the plan's step to the row.
        ahead = (
            bare.ahead[row - 1 : rows.stop - 1]
            if row
            else np.vstack((np.zeros_like(at_p), bare.ahead[: rows.stop - 1]))
        )
        self._faded = _Faded(first - 1, until, self._tracker.survey(times, positions, velocities, ahead))
        course = self._tracker.follow(position, velocity, self._faded.survey, 0, last - first + 1, self._reach)
        return Stretch(first, course)

    def _new_fade(self, now: float, offset: np.ndarray, rate: np.ndarray, ours: bool) -> Fade | None:
        offsets, rates = offset.tolist(), rate.tolist()
        if self._taking_over:
            self.seams.add(max((abs(o) for o, mixed in zip(offsets, self._mixed) if mixed), default=0.0))
        seconds = self._settings.takeover_s
        if seconds <= 0.0:
            return None
        left = [seconds] * len(offsets)
        if ours and self._fade is not None and self._fade.end > now and self._change is not None:
            # An offset that fades already keeps its time; what is new between the plans takes the full time.
            for j, (o, change, end) in enumerate(zip(offsets, self._change.tolist(), self._fade.ends.tolist())):
                was, rest = abs(o + change), end - now
                if 0.0 < rest < seconds and was > 0.0:
                    left[j] += was / (was + abs(change)) * (rest - seconds)
        durations = [
            fade_duration(*joint) if mixed else 0.0
            for mixed, *joint in zip(self._mixed, offsets, rates, left, self._reach_list, self._speed_list)
        ]
        return Fade(now, offset, rate, np.array(durations))

    def _lengthen(self, old: Stretch, first: int, last: int) -> Stretch:
        course, kept = old.course, first - old.first
        positions, velocities = [course.positions[kept:]], [course.velocities[kept:]]
        at = old.last
        while at < last:
            survey, row, to = self._bare, at - self._plan.first, last
            if at < self._faded.until:
                survey, row, to = self._faded.survey, at - self._faded.origin, min(last, self._faded.until)
            course = self._tracker.follow(
                course.positions[-1], course.velocities[-1], survey, row, row + to - at, self._reach, course.on_plan
            )
            positions.append(course.positions)
            velocities.append(course.velocities)
            at = to
        whole = Course(np.concatenate(positions), np.concatenate(velocities), course.acceleration, course.on_plan)
        return Stretch(first, whole)
