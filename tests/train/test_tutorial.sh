#!/usr/bin/env bash
# docs/tutorial.md does what it says: its ```sh blocks run one after the other in an empty folder, as they stand.
set -euo pipefail
: "${SOURCE:?}" "${DTRAIN:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=passive PATH=$work/bin:$PATH
mkdir "$work/bin" "$work/folder"
ln -s "$(realpath "$DTRAIN")" "$work/bin/dtrain"

{
    echo 'set -euo pipefail'
    awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside' "$SOURCE/docs/tutorial.md"
} >"$work/tutorial.sh"
[ "$(grep -c '^dtrain ' "$work/tutorial.sh")" -ge 10 ] || { echo "FAILED: the tutorial's blocks were not found"; exit 1; }

cd "$work/folder"
bash -x "$work/tutorial.sh" >"$work/out" 2>"$work/log" || {
    tail -40 "$work/log"
    echo "FAILED: a command of docs/tutorial.md, the last one above"
    exit 1
}
# docs/reference/metrics.md names every member of metrics.jsonl
for member in $(python3 -c 'import json, sys
for r in map(json.loads, open(sys.argv[1])): print(*r, *r.get("seconds", ()))' runs/photos/metrics.jsonl | tr " " "\n" | sort -u); do
    grep -q "\`$member\`" "$SOURCE/docs/reference/metrics.md" || {
        echo "FAILED: docs/reference/metrics.md does not name $member of metrics.jsonl"
        exit 1
    }
done
grep -q '"split":"test"' "$work/out" || { echo "FAILED: no test metrics"; exit 1; }
echo "docs/tutorial.md: $(grep -c '^dtrain ' "$work/tutorial.sh") commands ran"
