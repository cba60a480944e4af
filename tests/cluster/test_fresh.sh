#!/usr/bin/env bash
# Fresh machines: Debian 12, Debian 13 and Ubuntu 24.04, of nothing but apt. The README's first command runs in each as
# written (QUICKSTART="train.epochs=2" shortens it), and cpack makes the .deb of what it built. In a second such root apt
# installs the .deb, and a user has the man page, completions and configs, packs, and trains two steps alone and on two ranks. The
# unit tests run where UNIT says so (trixie). Packages and an hour: with FULL=1. SUITES="trixie" chooses, and
# ROOTS=DIR keeps the folders, which the next call goes on with.
. "${SOURCE:?}/tests/small_run.sh" || exit
[ "${FULL:-}" = 1 ] || { echo "skipped: builds dtrain in three fresh roots; FULL=1 does"; exit 77; }
. "$SOURCE/tests/cluster/roots.sh"

# what a clone has
mkdir "$work/source"
if [ -e "$SOURCE/.git" ]; then git -C "$SOURCE" archive HEAD; else tar -C "$SOURCE" -c --exclude='./build*' --exclude=./.cache .; fi |
    tar -x -C "$work/source" || fail "the source"

roots=${ROOTS:-$work} source=/opt/dtrain
for suite in ${SUITES:-bookworm trixie noble}; do
    maker=$roots/$suite user=$roots/$suite-user
    [ -e "$user" ] || make_root "$suite" "$user"
    if [ ! -e "$maker" ]; then
        cp -a "$user" "$maker"
        mkdir -p "$maker/opt"
        cp -r "$work/source" "$maker$source"
    fi
    at() { in_root "$maker" env -C $source "$@"; }
    begin=$SECONDS
    at launch/quickstart.sh ${QUICKSTART:-} >"$work/out" 2>"$work/log" || fail "$suite: launch/quickstart.sh"
    right=$(sed -n 's/^Right on the test part: \([0-9.]*\) %.*/\1/p' "$work/out")
    [ "${QUICKSTART:-}" ] || awk -v a="$right" 'BEGIN {exit !(a > 90)}' || fail "$suite: right on the test part: $right %"
    echo "$suite: launch/quickstart.sh ${QUICKSTART:-}: $right % after $((SECONDS - begin)) s"

    at ninja -C build help_files >"$work/log" 2>&1 && at cpack --config build/CPackConfig.cmake -B /tmp/deb >"$work/log" 2>&1 || fail "$suite: cpack"
    cp "$maker"/tmp/deb/dtrain_*.deb "$user/tmp/"
    in_root "$user" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq /tmp/dtrain_*.deb' >"$work/log" 2>&1 ||
        fail "$suite: apt does not install the .deb"
    in_root "$user" sh -c "id user || useradd -m -d /srv/user user" >"$work/log" 2>&1 || fail "$suite: useradd"
    by() { in_root "$user" setpriv --reuid=user --regid=user --init-groups env -C /srv/user HOME=/srv/user "$@"; }
    by dtrain info >"$work/out" 2>"$work/log" || fail "$suite: dtrain info"
    in_root "$user" dpkg -L dtrain >"$work/files"
    for file in man/man1/dtrain.1.gz bash-completion/completions/dtrain zsh/site-functions/_dtrain \
        fish/vendor_completions.d/dtrain.fish dtrain/configs/fusion.yaml; do
        grep -qx "/usr/share/$file" "$work/files" || fail "$suite: the .deb lacks $file"
    done
    by dtrain synth biometric raw >"$work/log" 2>&1 && by dtrain pack raw datasets/biometric.lmdb >"$work/log" 2>&1 || fail "$suite: pack"
    config=/usr/share/dtrain/configs/fusion.yaml
    by dtrain "$config" train.max_steps=2 run.name=one >"$work/out" 2>"$work/log" || fail "$suite: a run of two steps"
    by dtrain launch local -n 2 "$config" train.max_steps=2 run.name=two >"$work/out" 2>"$work/log" || fail "$suite: two ranks"
    grep -q '"split":"test"' "$work/out" || fail "$suite: no test metrics"
    echo "$suite: $(in_root "$user" dpkg-query -W dtrain): $(in_root "$user" sh -c 'mpirun --version' | head -n 1)"

    if [[ " ${UNIT-trixie} " == *" $suite "* ]]; then
        at env TARGETS="dtrain tests_unit" launch/build.sh build -DDTRAIN_TESTS=ON -DDTRAIN_CUDA=OFF >"$work/log" 2>&1 || fail "$suite: tests_unit"
        at ctest --test-dir build -L '^unit$' -j"$(nproc)" --output-on-failure --no-tests=error >"$work/log" 2>&1 || fail "$suite: unit tests"
        echo "$suite: unit tests: $(grep 'tests passed' "$work/log")"
    fi
    [ "${ROOTS:-}" ] || rm -rf "$maker" "$user"
done
echo passed
