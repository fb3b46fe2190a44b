"""Vision-Language-Action policies on real robots, over ROS 2."""

import os

# From 1.29 on ONNX Runtime keeps a database of its use in the home folder and reports it to its makers, unless told not
# to before it is loaded. A robot tells nobody what it does; who wants that sets the variable himself.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
