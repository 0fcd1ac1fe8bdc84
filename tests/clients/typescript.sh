#!/bin/sh
# Builds the package of clients/typescript, packs it, and installs the tarball into a clean folder beside the agents of the tests.
# Prints the folder: package/ is what is published, *.tgz the tarball, app/ has the agents.
#
#   NODE=node TSC=tsc.js NODE_TYPES=folder/@types tests/clients/typescript.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${FRONTDESK_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/frontdesk/test}
root=$cache/clients-typescript
{
    rm -rf "$root"
    mkdir -p "$root/app/agents"
    cp -r "$here/../../clients/typescript" "$root/package"
    cp "$here/../../LICENSE" "$root/package"
    rm -rf "$root/package/dist" "$root/package/node_modules"
    "$NODE" "$TSC" -p "$root/package"
    (cd "$root/package" && npm pack --silent --ignore-scripts --pack-destination "$root")
    cp "$here/agent.ts" "$root/app"
    cp "$here/agents/agent.ts" "$root/app/agents"
    echo '{"private": true, "type": "module"}' >"$root/app/package.json"
    # As an author on Node has it: without the types of browsers, and with a look into those of the package.
    cat >"$root/app/tsconfig.json" <<END
{
  "compilerOptions": {
    "target": "ES2023", "module": "NodeNext", "lib": ["ES2023"], "types": ["node"], "typeRoots": ["$NODE_TYPES"],
    "strict": true, "exactOptionalPropertyTypes": true, "erasableSyntaxOnly": true, "noEmit": true, "skipLibCheck": false
  },
  "include": ["*.ts", "agents/*.ts"]
}
END
    npm install --prefix "$root/app" --no-save --no-audit --no-fund --ignore-scripts --offline "$root"/*.tgz
} >&2
echo "$root"
