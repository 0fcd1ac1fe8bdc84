#!/bin/sh
# Makes, once, a virtual environment with the libraries of requirements.txt, and installs clients/python in it. Prints the folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/recipes
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
{
    if ! cmp -s "$here/requirements.txt" "$root/ready"; then
        rm -rf "$root"
        mkdir -p "$root"
        "$python" -m venv "$root/venv"
        "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
        cp "$here/requirements.txt" "$root/ready"
    fi
    # Each time, as the client may have changed.
    "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
        "$here/../../clients/python"
} >&2
echo "$root"
