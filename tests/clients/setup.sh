#!/bin/sh
# Makes, once, a virtual environment with the tools of requirements.txt, builds the wheel of clients/python there and installs it.
# Prints the folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/clients
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
{
    if ! cmp -s "$here/requirements.txt" "$root/ready"; then
        rm -rf "$root"
        mkdir -p "$root"
        "$python" -m venv "$root/tools"
        "$root/tools/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
        cp "$here/requirements.txt" "$root/ready"
    fi
    # A clean environment each time, with what a user gets.
    rm -rf "$root/dist" "$root/venv"
    "$root/tools/bin/python" -m build --no-isolation --outdir "$root/dist" "$here/../../clients/python"
    "$python" -m venv "$root/venv"
    "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$root"/dist/*.whl
    # Beside the judges of its cron expressions.
    "$root/tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$root"/dist/*.whl
} >&2
echo "$root"
