#!/usr/bin/env bash
# Every C file is as clang-format 14 leaves it (other versions break lines elsewhere). Changes nothing;
# says which files differ.
set -euo pipefail
cd "${SOURCE:?}"
command -v clang-format-14 >/dev/null || { echo "skipped: no clang-format-14"; exit 77; }
differ=$(find data launch models runtime tests -name '*.[ch]' -print0 |
    xargs -0 clang-format-14 --dry-run 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning: .*//p' | sort -u | tr '\n' ' ')
[ -z "$differ" ] || { echo "FAILED: run clang-format-14 -i $differ"; exit 1; }
