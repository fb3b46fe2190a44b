"""A simulated arm, its controller, and closed loops on simulated time."""

import os
import sys

if sys.platform == "linux":
    # MuJoCo reads it once, when it is imported. EGL renders with and without a display; GLFW needs one.
    os.environ.setdefault("MUJOCO_GL", "egl")
