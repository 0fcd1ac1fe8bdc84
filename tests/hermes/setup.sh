#!/bin/sh
# Prepares the gateway tests: a virtual environment with the newest supported
# hermes-agent, and the unpacked wheels of the older ones. Prints the folder.
# Safe to run again: it returns at once if the folder is complete.
#
#   setup.sh native    also makes `native`, an environment on top of that one with the libraries
#                      of the gateway's own Telegram, Matrix, Discord, Slack and Feishu adapters; those for SMS and
#                      WhatsApp need no others
set -eu

NEWEST=0.19.0
OLDER="0.18.2 0.17.0"
STAMP="3 $NEWEST $OLDER"
# The versions that the `messaging` and `matrix` extras of hermes-agent pin. Encryption, which
# needs a C library, is left out.
NATIVE="python-telegram-bot[webhooks]==22.6 mautrix==0.21.0 aiohttp-socks==0.11.0 discord.py==2.7.1 slack-bolt==1.29.0 slack-sdk==3.43.0 defusedxml==0.7.1 lark-oapi==1.6.8"

cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/hermes

is_ready() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

is_complete() {
    is_ready "$root/ready" "$STAMP" || return 1
    [ "$what" != native ] || is_ready "$root/native/ready" "$NATIVE"
}

what=${1:-}
if is_complete; then
    echo "$root"
    exit 0
fi

mkdir -p "$cache"
# One setup at a time: a second one waits and then finds everything in place.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$cache/hermes.lock"
    flock 9
    if is_complete; then
        echo "$root"
        exit 0
    fi
fi

python=${PYTHON:-python3.11}
command -v "$python" >/dev/null 2>&1 || python=python3

install() {
    "$root/$1/bin/python" -m pip install --quiet --disable-pip-version-check $2
}

packages() { "$root/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if ! is_ready "$root/ready" "$STAMP"; then
    rm -rf "$root"
    mkdir -p "$root"
    {
        "$python" -m venv "$root/venv"
        install venv "hermes-agent==$NEWEST aiohttp websockets"
        for version in $OLDER; do
            "$root/venv/bin/python" -m pip download --quiet --disable-pip-version-check \
                --no-deps --only-binary :all: --dest "$root/wheels" "hermes-agent==$version"
            "$root/venv/bin/python" -m zipfile -e \
                "$root/wheels/hermes_agent-$version-py3-none-any.whl" "$root/$version"
        done
        rm -rf "$root/wheels"
    } >&2
    printf '%s\n' "$STAMP" >"$root/ready"
fi

if [ "$what" = native ] && ! is_ready "$root/native/ready" "$NATIVE"; then
    rm -rf "$root/native"
    {
        "$python" -m venv "$root/native"
        # What hermes-agent needs is not installed twice, and its own environment stays as it is.
        packages venv >"$(packages native)/hermes.pth"
        install native "$NATIVE"
    } >&2
    printf '%s\n' "$NATIVE" >"$root/native/ready"
fi
echo "$root"
