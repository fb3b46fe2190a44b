"""How what is planned becomes what is commanded: a difference between the two fades out, once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vla_runtime.control.drive import Drive
from vla_runtime.control.gate import Gate
from vla_runtime.control.reissue import windowed
from vla_runtime.control.trajectory import Trajectory
from vla_runtime.control.watchdog_settings import WATCHDOG_TABLE

PERIOD = 0.02
SETTINGS = WATCHDOG_TABLE.load({})


def plan(now: float, limits, offset: float, plan_id: str) -> Trajectory:
    """What an executor says at ``now``: a slow wave moved by ``offset``, points on its grid, then a brake."""
    first = np.floor((now + 0.01) / PERIOD) * PERIOD + 0.01
    times = np.concatenate(([0.0], first - now + PERIOD * np.arange(60)))
    phase = np.arange(len(limits))
    positions = offset + 0.3 * np.sin(now + times[:, None] + phase)
    velocities = 0.3 * np.cos(now + times[:, None] + phase)
    velocities[-1] = 0.0
    return windowed(Trajectory(now, limits.joint_names, times, positions, velocities, plan_id), 0.2, limits, PERIOD)


@given(st.floats(-0.02, 0.02), st.integers(1, 5) | st.integers(11, 18))
def test_after_a_seam_the_command_is_the_plan_itself(make_limits, offset, phase_ms):
    # (With a point less than 4 ms ahead, the point goes and the curve round it is another one.)
    limits = make_limits(3)
    drive = Drive(Gate(limits, SETTINGS), {})
    seam, differences = 20, []
    for tick in range(60):
        now = 10.0 + PERIOD * tick
        said = plan(now, limits, offset if tick >= seam else 0.0, "b" if tick >= seam else "a")
        at = now + 1e-3 * phase_ms
        if drive.shadow is None:
            drive.follow(said)
        else:
            drive.follow(drive.fit(at, said))
        position, velocity = drive.command(at).sample(at)
        wanted, speed = said.sample(at)
        differences.append(max(np.abs(position - wanted).max(), 0.1 * np.abs(velocity - speed).max()))
    assert max(differences[:seam]) < 1e-6
    assert abs(differences[seam] - abs(offset)) < 1e-3  # where the arm was being driven, not where the plan jumped to
    gone = seam + round(SETTINGS.seam_s / PERIOD) + 2
    assert max(differences[gone:]) < 1e-6
