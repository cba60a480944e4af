#!/usr/bin/env bash
# docs/tutorial.md does what it says: its blocks run one after the other in an empty folder, as they stand but for the number
# of photographs, 240 of 600 without FULL=1, and of the long training's epochs; the first one builds, and is left out. What it
# shows of the results has the members of what is printed.
. "${SOURCE:?}/tests/small_run.sh" || exit
export PATH=$work/bin:$PATH
mkdir "$work/bin" "$work/folder"
ln -s "$(realpath "$DTRAIN")" "$work/bin/dtrain"

n=240 least=0.5
[ -z "${FULL:-}" ] || n=600 least=0.85
{
    echo 'set -euo pipefail'
    awk '/^```sh$/ || /^```console$/ && n++ {inside = 1; next} /^```/ {inside = 0} inside' "$SOURCE/docs/tutorial.md" |
        sed "s/^\$ //; s/photos --n 600/photos --n $n/; ${FULL:+#}s/train.epochs=20/train.epochs=1/"
} >"$work/tutorial.sh"
[ "$(grep -c '^dtrain ' "$work/tutorial.sh")" -ge 10 ] || fail "the tutorial's blocks were not found"

cd "$work/folder"
bash -x "$work/tutorial.sh" >"$work/out" 2>"$work/log" || fail "a command of docs/tutorial.md, the last one above"
members() { grep -o '"[a-z0-9]*":' | paste -sd' '; }
shown=$(grep '^{"split":"test"' "$SOURCE/docs/tutorial.md" | members)
[[ "$(grep -m 1 '^{"split":"test"' "$work/out" | members)" == "$shown"* ]] || fail "docs/tutorial.md shows $shown: $(cat "$work/out")"
grep -q '^{"kind":"eval"' "$work/out" || fail "no line of an evaluation"
# docs/reference/metrics.md names every member of metrics.jsonl
for member in $(py value runs/photos/metrics.jsonl '" ".join({k for r in rows for k in (*r, *r.get("seconds", ()))})'); do
    grep -q "\`$member\`" "$SOURCE/docs/reference/metrics.md" || fail "docs/reference/metrics.md does not name $member"
done
[ "$(py value runs/photos/metrics.jsonl 'max(r["accuracy"] for r in rows if r.get("split") == "test") >= '$least)" = True ] ||
    fail "a newcomer's first network is right for fewer than $least of the test photographs"
echo "docs/tutorial.md: $(grep -c '^dtrain ' "$work/tutorial.sh") commands ran"
