#!/bin/sh
# install-peers.sh VENV FILE PACKAGE...: fill a virtual environment with the requirements of FILE (beside this script),
# then with the packages alone, without what their metadata asks for, and with vla_runtime itself.
set -eu
venv=$1 file=$2 here=$(dirname "$0")
shift 2
pip="$venv/bin/pip --disable-pip-version-check -q"
$pip install -r "$here/$file"
$pip install --no-deps "$@"
$pip install --no-deps -e "$here/.."
