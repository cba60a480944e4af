#!/usr/bin/env bash
# docs/tutorial.md does what it says: its ```sh blocks run one after the other in an empty folder, as they stand.
. "${SOURCE:?}/tests/small_run.sh" || exit
export PATH=$work/bin:$PATH
mkdir "$work/bin" "$work/folder"
ln -s "$(realpath "$DTRAIN")" "$work/bin/dtrain"

{
    echo 'set -euo pipefail'
    awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside' "$SOURCE/docs/tutorial.md"
} >"$work/tutorial.sh"
[ "$(grep -c '^dtrain ' "$work/tutorial.sh")" -ge 10 ] || fail "the tutorial's blocks were not found"

cd "$work/folder"
bash -x "$work/tutorial.sh" >"$work/out" 2>"$work/log" || fail "a command of docs/tutorial.md, the last one above"
# docs/reference/metrics.md names every member of metrics.jsonl
for member in $(py value runs/photos/metrics.jsonl '" ".join({k for r in rows for k in (*r, *r.get("seconds", ()))})'); do
    grep -q "\`$member\`" "$SOURCE/docs/reference/metrics.md" || fail "docs/reference/metrics.md does not name $member"
done
[ "$(py value runs/photos/metrics.jsonl 'max(r["accuracy"] for r in rows if r.get("split") == "test") >= 0.85')" = True ] ||
    fail "a newcomer's first network is right for fewer than 85 % of the test photographs"
echo "docs/tutorial.md: $(grep -c '^dtrain ' "$work/tutorial.sh") commands ran"
