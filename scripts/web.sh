#!/usr/bin/env bash
# Builds web/ into web/dist: the scripts of figures over time and of still figures, which the report crate embeds, and that of the page of a mesh, which
# longhaul-mesh embeds. Quick and silent where nothing has changed. Where Node or npm's registry cannot be had, pages keep their still figures and a mesh has no
# page; WEB_REQUIRED=1 makes that an error.
set -euo pipefail
cd "$(dirname "$0")/../web"

cannot() {
    echo "web: $1; pages will have still figures" >&2
    exit "${WEB_REQUIRED:-0}"
}
newer=$(find package-lock.json tsconfig.json build.mjs src -newer dist/charts.sha256 2>/dev/null || echo none)
built=yes
for name in charts stills mesh; do
    [[ -s dist/$name.js.gz && -s dist/$name.sha256 ]] || built=
done
if [[ $built && -z $newer ]]; then
    exit 0
fi
for command in node npm; do
    command -v "$command" >/dev/null || cannot "there is no $command (make deps)"
done
# Installed again when the list changes. No package's own script runs.
if ! cmp -s package-lock.json node_modules/installed.json; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || cannot "npm could not install web/package-lock.json"
    cp package-lock.json node_modules/installed.json
fi
npm run --silent check && npm run --silent build
