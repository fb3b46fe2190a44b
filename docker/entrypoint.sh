#!/bin/bash
# Source ROS and this package, then become the command: signals must reach it, for its stop trajectory.
set -e
# ROS's setup scripts read variables that may not be set.
source "/opt/ros/${ROS_DISTRO}/setup.bash"
source /opt/vla_runtime/local_setup.bash
export PATH="/opt/vla_runtime/lib/vla_runtime:/opt/venv/bin:${PATH}"
exec "$@"
