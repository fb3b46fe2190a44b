"""Installs the package for ament_python: everything pip needs stands in pyproject.toml."""

from glob import glob
from os.path import isfile, join

from setuptools import find_packages, setup

NAME = "vla_runtime"


def share(folder: str) -> list[tuple[str, list[str]]]:
    """List the files under ``folder`` as data_files of share/vla_runtime, keeping their folders."""
    files: dict[str, list[str]] = {}
    for path in sorted(glob(join(folder, "**"), recursive=True)):
        if isfile(path):
            files.setdefault(join("share", NAME, path.rpartition("/")[0]), []).append(path)
    return list(files.items())


setup(
    name=NAME,
    version="0.1.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["**/*.yaml", "**/*.xml", "**/*.json", "**/*.html"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        *share("launch"),
        *share("config"),
        *share("bundles"),
    ],
    zip_safe=False,
    entry_points={
        "console_scripts": [
            "vla = vla_runtime.cli:main",
            "policy_node = vla_runtime.nodes.policy_node:main",
            "executor_node = vla_runtime.nodes.executor_node:main",
            "watchdog_node = vla_runtime.nodes.watchdog_node:main",
            "sim_robot = vla_runtime.sim.robot_node:main",
        ],
    },
)
