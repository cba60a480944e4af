#!/usr/bin/env bash
# Configures and builds: [TARGETS="dtrain …"] launch/build.sh [BUILD_DIR [CMAKE_OPTION …]]. The default is everything, in build/.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-build}
[ $# -gt 0 ] && shift
cmake -S . -B "$dir" -G Ninja "$@" >"$dir.configure.log" 2>&1 || { cat "$dir.configure.log" >&2; rm -f "$dir.configure.log"; exit 70; }
rm -f "$dir.configure.log"
ninja -C "$dir" --quiet ${TARGETS:-}
