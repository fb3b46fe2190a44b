# syntax=docker/dockerfile:1.7
# vla_runtime on a Jetson.
#
#   docker build -f docker/jetson.Dockerfile -t vla_runtime:jetpack6 .                        # Orin, Humble
#   docker build -f docker/jetson.Dockerfile -t vla_runtime:jetpack7 --build-arg JETPACK=7 .  # Thor or Orin, Jazzy
#
# Build it on the Jetson itself (or under emulation): every layer is aarch64. Torch is not in it: it is for export, on
# another machine. Run it with docker/compose.yaml, which brings the limits that the control loops need.
ARG JETPACK=6

# CUDA 12.6 and TensorRT 10.3 of JetPack 6. NVIDIA publishes no l4t-jetpack image after this one.
FROM nvcr.io/nvidia/l4t-jetpack:r36.4.0 AS jetpack6
ENV ROS_DISTRO=humble CONSTRAINTS=constraints-py310.txt CUPY=cupy-cuda12x

# From JetPack 7 on a Jetson runs the same CUDA images as any ARM server; this one has TensorRT.
FROM nvcr.io/nvidia/cuda:13.3.1-tensorrt-devel-ubuntu24.04 AS jetpack7
ENV ROS_DISTRO=jazzy CONSTRAINTS=constraints-py312.txt CUPY=cupy-cuda13x

# hadolint ignore=DL3006
FROM jetpack${JETPACK} AS ros
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl gnupg \
 && curl -fsSL https://raw.githubusercontent.com/ros/rosdistro/master/ros.key -o /usr/share/keyrings/ros.gpg \
 && . /etc/os-release \
 && echo "deb [signed-by=/usr/share/keyrings/ros.gpg] http://packages.ros.org/ros2/ubuntu ${UBUNTU_CODENAME} main" \
      > /etc/apt/sources.list.d/ros2.list \
 && apt-get update \
 && apt-get install -y --no-install-recommends \
      python3-libnvinfer python3-venv \
      "ros-${ROS_DISTRO}-ros-base" "ros-${ROS_DISTRO}-rmw-fastrtps-cpp" \
 && rm -rf /var/lib/apt/lists/*

# A compiler only here: Ruckig has no wheel for aarch64.
FROM ros AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential cmake python3-colcon-common-extensions python3-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY docker/${CONSTRAINTS} docker/
# The environment sees the system's packages: rclpy of the distro and the TensorRT bindings of JetPack are there.
RUN python3 -m venv --system-site-packages /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir -c "docker/${CONSTRAINTS}" \
      numpy scipy ruckig pydantic PyYAML pillow tokenizers onnxruntime onnx safetensors rich matplotlib rosbags "${CUPY}" setuptools
COPY package.xml setup.py setup.cfg pyproject.toml README.md ./
COPY resource resource
COPY launch launch
COPY config config
COPY vla_runtime vla_runtime
# colcon under the environment's interpreter, so that the nodes' first line names it.
RUN . "/opt/ros/${ROS_DISTRO}/setup.bash" \
 && /opt/venv/bin/python -m colcon build --merge-install --install-base /opt/vla_runtime

FROM ros AS runtime
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/vla_runtime /opt/vla_runtime
COPY --chmod=755 docker/entrypoint.sh /entrypoint.sh
# Not root: what needs privileges (real-time priority, locked memory) is granted by compose.yaml as limits.
RUN (id -u 1000 >/dev/null 2>&1 && userdel -r "$(id -nu 1000)" || true) \
 && useradd --create-home --uid 1000 --groups video robot \
 && mkdir -p /bundles /bags /cache && chown robot /bags /cache
USER 1000
WORKDIR /home/robot
# Camera frames are larger than Fast DDS's shared-memory segment (512 kB) and than a UDP packet: with its default
# transports, 4 to 26 of 60 best-effort 640x480 images arrived; with LARGE_DATA all did.
ENV FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA RMW_IMPLEMENTATION=rmw_fastrtps_cpp \
    XDG_CACHE_HOME=/cache PYTHONUNBUFFERED=1 RCUTILS_COLORIZED_OUTPUT=1
HEALTHCHECK --interval=10s --timeout=8s --start-period=120s --retries=3 CMD ["/entrypoint.sh", "vla", "health"]
ENTRYPOINT ["/entrypoint.sh"]
CMD ["vla", "selftest"]
