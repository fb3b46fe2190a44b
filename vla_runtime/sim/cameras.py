"""The simulated cameras: a thread of their own that looks at copies of the scene, so that control never waits."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.sim.eyes import Eyes
from vla_runtime.sim.robot import SimRobot


class Cameras:
    """Takes a picture with each camera at a fixed rate and hands it on, from `start` to `stop`."""

    def __init__(
        self,
        robot: SimRobot,
        publish: Callable[[str, int, np.ndarray], None],
        names: Sequence[str] = ("front", "wrist"),
        fps: float = 30.0,
        size: tuple[int, int] = (96, 96),
    ):
        """publish(camera, ROS nanoseconds of the instant, (h, w, 3) uint8 RGB) is called from the cameras' thread."""
        self._robot = robot
        self._publish = publish
        self._names = tuple(names)
        self._period_s = 1.0 / fps
        self._size = size
        self._qpos = np.zeros(robot.arm.model.nq)
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="cameras", daemon=True)
        self.frames = 0
        self.skipped = 0
        self.frozen: set[str] = set()
        """Cameras that send their last picture, with its old stamp, again and again (a fault that drivers have)."""

    def start(self) -> None:
        """Begin. Raises UserError when this machine cannot render off screen."""
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise UserError(
                f"off-screen rendering does not work here ({self._problem}). Install Mesa's EGL "
                "(apt-get install libegl1 libgl1-mesa-dri libgl1), or start the robot without cameras "
                "(-p cameras:=false)"
            ) from self._problem

    def stop(self) -> None:
        """Finish the running frame and end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether pictures are being taken."""
        return self._thread.is_alive()

    def _run(self) -> None:
        # Model, data and OpenGL context are this thread's own; only positions cross over.
        eyes = Eyes()
        try:
            self._robot.pose(self._qpos)
            for name in self._names:
                eyes.take(self._qpos, name, *self._size)
        except Exception as problem:
            self._problem = problem
            return
        finally:
            self._ready.set()
        try:
            self._take_pictures(eyes)
        finally:
            eyes.close()

    def _take_pictures(self, eyes: Eyes) -> None:
        due = time.monotonic()
        last: dict[str, tuple[int, np.ndarray]] = {}
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            stamp_ns = self._robot.pose(self._qpos)
            for name in self._names if stamp_ns else ():  # 0: the robot has not moved yet, there is no instant to stamp
                if name not in self.frozen or name not in last:
                    last[name] = stamp_ns, eyes.take(self._qpos, name, *self._size)
                self._publish(name, *last[name])
            self.frames += 1
            due += self._period_s
            late = int((time.monotonic() - due) / self._period_s)
            if late > 0:
                self.skipped += late
                due += late * self._period_s
