#!/bin/sh
# Prepares the gateway tests: a virtual environment with the newest supported
# hermes-agent, and the unpacked wheels of the older ones. Prints the folder.
# Safe to run again: it returns at once if the folder is complete.
set -eu

NEWEST=0.19.0
OLDER="0.18.2 0.17.0"
STAMP="3 $NEWEST $OLDER"

cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/hermes
done_file=$root/ready

if [ -f "$done_file" ] && [ "$(cat "$done_file")" = "$STAMP" ]; then
    echo "$root"
    exit 0
fi

mkdir -p "$cache"
# One setup at a time: a second one waits and then finds everything in place.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$cache/hermes.lock"
    flock 9
    if [ -f "$done_file" ] && [ "$(cat "$done_file")" = "$STAMP" ]; then
        echo "$root"
        exit 0
    fi
fi

python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3

rm -rf "$root"
mkdir -p "$root"
{
    "$python" -m venv "$root/venv"
    "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "hermes-agent==$NEWEST" aiohttp websockets
    for version in $OLDER; do
        "$root/venv/bin/python" -m pip download --quiet --disable-pip-version-check \
            --no-deps --only-binary :all: --dest "$root/wheels" "hermes-agent==$version"
        "$root/venv/bin/python" -m zipfile -e \
            "$root/wheels/hermes_agent-$version-py3-none-any.whl" "$root/$version"
    done
    rm -rf "$root/wheels"
} >&2
printf '%s\n' "$STAMP" >"$done_file"
echo "$root"
