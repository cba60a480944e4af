#!/usr/bin/env bash
# Keys and words of earlier releases: read with a warning, in files, overrides and runs; rewritten by check --upgrade,
# which changes nothing else; gone with the next major release.
. "${SOURCE:?}/tests/small_run.sh" || exit
cd "$work"
dtrain=$(realpath "$DTRAIN")
upgrade() { "$dtrain" check "$1" --upgrade 2>"$work/log" || fail "check $1 --upgrade"; }
warned() { # N TEXT
    [ "$(grep -c 'goes with the next major release' "$work/log")" = "$1" ] || fail "not $1 warnings: $(cat "$work/log")"
    grep -qF -- "$2" "$work/log" || fail "no '$2': $(cat "$work/log")"
}

# -- configs of today stay as they are
for config in "$SOURCE"/configs/*.yaml "$SOURCE/tests/compat/small.yaml"; do
    upgrade "$config" | cmp - "$config" || fail "--upgrade changes $config"
done

# -- each renaming, in blocks, braces, quotes and lists, behind letters of two bytes
tar -xzf "$SOURCE/tests/compat/runs-1.0.tar.gz" ./set.lmdb ./small.yaml ./runs/adamw ./expected/adamw.words
sed -e 's/^device:.*/device: {kind: cpu, threads: 1, lanes: 1} # größer/' -e 's/^data:/data:\n  "cache_gib": 0.5   # half/' \
    -e "s/^eval:.*/eval: {every: 8 steps, batch: 4, best: 'auc', metrics: [loss, auc]}/" small.yaml >old.yaml
sed -e 's/lanes/replicas/' -e 's/"cache_gib": 0.5 /"cache_size": 0.5GiB /' -e "s/'auc'/'pair_auc'/" -e 's/, auc]/, pair_auc]/' old.yaml >want.yaml
upgrade old.yaml >new.yaml
cmp new.yaml want.yaml || fail "upgraded: $(diff new.yaml want.yaml)"
upgrade new.yaml | cmp - new.yaml || fail "it is not the same again"
exits 0 "old.yaml:3:33: 'device.lanes' is 'device.replicas' now" "$dtrain" old.yaml run.name=old train.max_steps=1
warned 4 "'data.cache_gib' is 'data.cache_size' now"
exits 0 '' "$dtrain" new.yaml run.name=old run.dir=new train.max_steps=1
warned 0 ''
sed 's/dir: new/dir: runs/' new/old/config.yaml | cmp - runs/old/config.yaml || fail "old and new keys mean different runs"

# -- on the command line; by one rank
exits 0 "command line: 'device.lanes' is 'device.replicas' now" "$dtrain" new.yaml run.name=over train.max_steps=1 device.lanes=1 'data={cache_gib: 2}'
warned 2 "'data.cache_gib' is 'data.cache_size' now"
grep -q 'cache_size: 2GiB' runs/over/config.yaml || fail "the override: $(grep cache_size runs/over/config.yaml)"
if have_mpi; then
    exits 0 '' "${ranks[@]}" 2 "$dtrain" new.yaml run.name=two train.max_steps=1 device.lanes=1
    warned 1 'device.lanes'
fi

# -- a run of an earlier release: its config.yaml is dtrain's, and it goes on
read -ra words <expected/adamw.words
sed -i -e 's/^  replicas: .*/  lanes: 1/' -e 's/^  tf32:.*/&\n  hold_input: false/' runs/adamw/config.yaml
grep -q 'lanes: 1' runs/adamw/config.yaml && grep -q hold_input runs/adamw/config.yaml || fail "not as an earlier release wrote it"
cp runs/adamw/config.yaml earlier.yaml
exits 0 'step 24' "$dtrain" runs/adamw/config.yaml run.stop_at=
! grep -qE 'lanes|hold_input' runs/adamw/config.yaml || fail "an old key stays in config.yaml"
cp earlier.yaml runs/adamw/config.yaml
exits 0 'is finished' "$dtrain" small.yaml "${words[@]}"
exits 0 '' "$dtrain" eval runs/adamw --which latest

# -- old and new beside each other: the new one counts, and --upgrade removes the line of the other
sed 's/^data:/data:\n  cache_gib: 5 # gone\n  cache_size: 7GiB/' small.yaml >both.yaml
upgrade both.yaml | diff - <(grep -v cache_gib both.yaml) || fail "the line of the old key"
exits 0 'which has a value of its own: it is ignored' "$dtrain" both.yaml run.name=both train.max_steps=1
grep -q 'cache_size: 7GiB' runs/both/config.yaml || fail "not the new key's: $(grep cache_size runs/both/config.yaml)"
sed 's/^device:.*/device: {lanes: 1, kind: cpu, threads: 1, replicas: 1}/' small.yaml >braces.yaml
exits 2 "'lanes' of an earlier release cannot be replaced as it is written" "$dtrain" check braces.yaml --upgrade
sed 's/^device:/devise:/' old.yaml >wrong.yaml
exits 2 "wrong.yaml:3:1: unknown key 'devise'" "$dtrain" check wrong.yaml --upgrade
[ ! -s "$work/out" ] || fail "half a config is printed"
exits 2 'expects a config file, and nothing else' "$dtrain" check old.yaml run.seed=1 --upgrade
exits 2 'exclude each other' "$dtrain" check old.yaml --graph --upgrade

# -- a renamed key lives until the next major release
now=$("$dtrain" --version | sed 's/^dtrain //')
while IFS=. read -r major _; do
    [ "${now%%.*}" -le "$major" ] || fail "renamed_keys.def has keys of $major.x, and this is $now"
done < <(sed -n 's/^RENAMED.*"\([0-9.]*\)")$/\1/p' "$SOURCE/runtime/config/renamed_keys.def")
