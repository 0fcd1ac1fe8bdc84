#!/bin/sh
# Makes, once, a virtual environment with the vendors' libraries of requirements.txt, and prints its folder.
# Safe to run again; a finished folder makes it return at once.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/vendors

if cmp -s "$here/requirements.txt" "$root/ready"; then
    echo "$root"
    exit 0
fi

python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
rm -rf "$root"
mkdir -p "$root"
{
    "$python" -m venv "$root/venv"
    "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
} >&2
cp "$here/requirements.txt" "$root/ready"
echo "$root"
