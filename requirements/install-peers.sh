#!/bin/sh
# Fill the virtual environment $1 with LeRobot and what the comparisons need.
set -eu
pip="$1/bin/pip --disable-pip-version-check -q"
here=$(dirname "$0")
$pip install -r "$here/peers.txt"
$pip install --no-deps lerobot==0.4.4 torchvision==0.28.0 timm==1.0.22
$pip install --no-deps -e "$here/.."
