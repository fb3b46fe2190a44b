# syntax=docker/dockerfile:1.7
# vla_runtime on a PC: the simulated robot, the demo, the toolchain; with an NVIDIA GPU also its engines.
#
#   docker build -f docker/desktop.Dockerfile -t vla_runtime:desktop .
#   docker run --rm -it vla_runtime:desktop vla demo --episodes 1
FROM ros:jazzy-ros-base-noble AS ros
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
# Mesa's software renderer is enough for the simulator's cameras; no display is needed.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libegl1 libgl1 libgl1-mesa-dri python3-venv ros-jazzy-rmw-fastrtps-cpp \
 && rm -rf /var/lib/apt/lists/*

FROM ros AS build
WORKDIR /src
COPY docker/constraints-py312.txt docker/
RUN python3 -m venv --system-site-packages /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir -c docker/constraints-py312.txt \
      numpy scipy ruckig pydantic PyYAML pillow tokenizers onnxruntime onnx safetensors rich matplotlib rosbags mujoco setuptools
COPY package.xml setup.py setup.cfg pyproject.toml README.md ./
COPY resource resource
COPY launch launch
COPY config config
COPY bundles bundles
COPY vla_runtime vla_runtime
RUN . /opt/ros/jazzy/setup.bash \
 && /opt/venv/bin/python -m colcon build --merge-install --install-base /opt/vla_runtime

FROM ros AS runtime
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/vla_runtime /opt/vla_runtime
COPY --chmod=755 docker/entrypoint.sh /entrypoint.sh
# Ubuntu's image has a user of its own at 1000, which bind mounts of most hosts want.
RUN userdel -r ubuntu \
 && useradd --create-home --uid 1000 robot \
 && mkdir -p /bundles /bags /cache && chown robot /bags /cache
USER 1000
WORKDIR /home/robot
# Camera frames are larger than Fast DDS's shared-memory segment (512 kB) and than a UDP packet: with its default
# transports, 4 to 26 of 60 best-effort 640x480 images arrived; with LARGE_DATA all did.
ENV FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA RMW_IMPLEMENTATION=rmw_fastrtps_cpp ROS_DISTRO=jazzy \
    XDG_CACHE_HOME=/cache MUJOCO_GL=egl PYTHONUNBUFFERED=1 RCUTILS_COLORIZED_OUTPUT=1
HEALTHCHECK --interval=10s --timeout=8s --start-period=120s --retries=3 CMD ["/entrypoint.sh", "vla", "health"]
ENTRYPOINT ["/entrypoint.sh"]
CMD ["vla", "--help"]
