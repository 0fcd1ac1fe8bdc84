#!/bin/sh
# Builds the package of clients/typescript, packs it and installs the tarball into a clean folder, with the agents of the tests.
# Prints the folder: package/ is what is published, *.tgz the tarball, app/ the folder with the agents.
#
#   NODE=path TSC=path tests/clients/typescript.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/clients-typescript
{
    rm -rf "$root"
    mkdir -p "$root/app"
    cp -r "$here/../../clients/typescript" "$root/package"
    cp "$here/../../LICENSE" "$root/package"
    rm -rf "$root/package/dist" "$root/package/node_modules"
    "$NODE" "$TSC" -p "$root/package"
    (cd "$root/package" && npm pack --ignore-scripts --pack-destination "$root")
    echo '{"private": true, "type": "module"}' >"$root/app/package.json"
    npm install --prefix "$root/app" --no-save --no-audit --no-fund --ignore-scripts --offline "$root"/*.tgz
    cp "$here"/agent.ts "$here"/agents/agent.ts "$root/app" 2>/dev/null || true
    # The agents are checked as their authors would: against the installed package.
    mkdir -p "$root/app/agents"
    cp "$here"/agents/agent.ts "$root/app/agents/agent.ts"
} >&2
echo "$root"
