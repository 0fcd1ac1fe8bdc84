#!/bin/sh
# Makes, once, two virtual environments: `venv` with the official ACP package, and `hermes`, on top of the gateway's, with the
# version that hermes-acp wants. Prints the folder.
set -eu

ACP=0.12.1
HERMES_ACP=0.9.0
STAMP="1 $ACP $HERMES_ACP"

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/bridge
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3
{
    if [ "$(cat "$root/ready" 2>/dev/null)" != "$STAMP" ]; then
        hermes=$(sh "$here/../hermes/setup.sh")
        rm -rf "$root"
        mkdir -p "$root"
        "$python" -m venv "$root/venv"
        "$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check "agent-client-protocol==$ACP"
        "$python" -m venv "$root/hermes"
        purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
        "$hermes/venv/bin/python" -c "$purelib" >"$("$root/hermes/bin/python" -c "$purelib")/gateway.pth"
        "$root/hermes/bin/python" -m pip install --quiet --disable-pip-version-check "agent-client-protocol==$HERMES_ACP"
        echo "$STAMP" >"$root/ready"
    fi
} >&2
echo "$root"
