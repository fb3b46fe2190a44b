"""Checks of options that several commands share."""

import argparse
import math
import re

from vla_runtime.errors import UsageError

ROS_NAME = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?", re.ASCII)


def at_least(args: argparse.Namespace, **least: float) -> None:
    """Hold each number that was given (by its name in ``args``) to its least; UsageError names the first below it."""
    for name, low in least.items():
        value = getattr(args, name)
        if value is not None and not (value >= low and math.isfinite(value)):
            raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be a finite number of at least {low:g}")


def ros_names(args: argparse.Namespace, *options: str) -> None:
    """Hold options to the form of ROS names, relative, absolute or empty; UsageError names the first that is none."""
    for option in options:
        value = getattr(args, option)
        if value and not ROS_NAME.fullmatch(value):
            raise UsageError(
                f"--{option.replace('_', '-')} is '{value}'; a ROS name has letters, digits and _ between its slashes, "
                "and none of its parts begins with a digit"
            )
