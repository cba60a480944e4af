#!/usr/bin/env bash
# What is made from the tables of verbs: help, completion, the man page; and that they are installed with the program.
. "$SOURCE/tests/small_run.sh"

for verb in train "data ls" sweep; do
    cmp <("$DTRAIN" help $verb) <("$DTRAIN" $verb --help) || fail "help $verb"
done
code=0
"$DTRAIN" help data nothing 2>"$work/out" || code=$?
[ $code = 2 ] && grep -q "no verb 'data nothing'" "$work/out" || fail "help of nothing: $code $(cat "$work/out")"

# -- no line is longer than a terminal of 100 columns
for part in '' data.augment model.layers; do
    "$DTRAIN" keys $part >"$work/keys"
    ! LC_ALL=C.UTF-8 grep -E '.{101}' "$work/keys" >"$work/long" || fail "keys $part: long lines: $(cat "$work/long")"
done

# -- bash completes verbs, inner verbs, options and keys
complete_words() { # complete_words WORD… : candidates for the last word
    bash -c '. <("$0" help --completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dtrain 2>/dev/null
             echo "${COMPREPLY[*]}"' "$DTRAIN" "$@"
}
[ "$(complete_words dtrain sw)" = sweep ] || fail "verbs: $(complete_words dtrain sw)"
[ "$(complete_words dtrain data qu)" = query ] || fail "inner verbs: $(complete_words dtrain data qu)"
[ "$(complete_words dtrain data ls --li)" = --limit ] || fail "options: $(complete_words dtrain data ls --li)"
[ "$(complete_words dtrain train x train.optimizer.na)" = train.optimizer.name= ] ||
    fail "keys: $(complete_words dtrain train x train.optimizer.na)"
for shell in zsh fish; do
    "$DTRAIN" help --completion $shell >"$work/script"
    grep -q sweep "$work/script" || fail "$shell: no verbs"
    ! command -v $shell >/dev/null || $shell -n "$work/script" || fail "$shell cannot read its script"
done
if command -v fish >/dev/null; then
    [ "$(fish -c "source $work/script; complete -C 'dtrain swe'" | cut -f1)" = sweep ] || fail "fish completes nothing"
fi

# -- the man page has no errors
if command -v groff >/dev/null; then
    "$DTRAIN" help --man | groff -K utf8 -man -ww -T utf8 >"$work/page" 2>"$work/out"
    [ ! -s "$work/out" ] || fail "man page: $(cat "$work/out")"
    grep -q "checkpoint (default" "$work/page" || fail "the man page lacks options"
fi

# -- installed elsewhere it finds its modules
if command -v cmake >/dev/null && [ -e "$BUILD/help/dtrain.1" ]; then
    cmake --install "$BUILD" --prefix "$work/usr" >/dev/null
    [ -s "$work/usr/share/man/man1/dtrain.1" ] || fail "no man page is installed"
    [ -s "$work/usr/share/bash-completion/completions/dtrain" ] || fail "no completion is installed"
    "$work/usr/bin/dtrain" info >"$work/out" || fail "the installed program does not run"
fi
# -- the Debian package: nothing that lintian complains of, and what it holds runs
if [ -e "$work/usr/bin/dtrain" ] && command -v lintian >/dev/null && ! sanitized; then
    cpack --config "$BUILD/CPackConfig.cmake" -B "$work/deb" >"$work/out" 2>&1 || fail "cpack: $(tail -3 "$work/out")"
    lintian --allow-root --fail-on error,warning "$work"/deb/*.deb >"$work/out" 2>&1 || fail "lintian: $(cat "$work/out")"
    dpkg-deb -x "$work"/deb/*.deb "$work/unpacked"
    "$work/unpacked/usr/bin/dtrain" info >/dev/null || fail "the packaged program does not run"
    for file in doc/dtrain/docs/monitoring/alerts.yaml doc/dtrain/copyright dtrain/configs/fusion.yaml dtrain/launch/mpi_env.sh \
        man/man1/dtrain.1.gz bash-completion/completions/dtrain zsh/site-functions/_dtrain fish/vendor_completions.d/dtrain.fish; do
        [ -s "$work/unpacked/usr/share/$file" ] || fail "the package lacks $file"
    done
fi
if [ ! -e "$work/usr/bin/dtrain" ] || ! command -v mpirun >/dev/null || [ ! -e "$BUILD/dtrain_mpi.so" ] || ! command -v script >/dev/null; then
    echo "passed, without ranks"
    exit 0
fi
small_data "$work"
config=$(small_config "$work")
"${ranks[@]}" 2 "$work/usr/bin/dtrain" "$config" train.max_steps=2 run.name=a >/dev/null 2>"$work/log" ||
    fail "the installed program finds no MPI"

# -- under mpirun in a terminal there is a live line; in a pipe there is none
run=("${ranks[@]}" 2 "$DTRAIN" "$config" train.max_steps=2)
TERM=xterm script -qec "${run[*]} run.name=b" "$work/screen" >/dev/null
grep -q $'\r.*step 2/2.*\x1b\[K' "$work/screen" || fail "no live line under mpirun: $(cat -v "$work/screen")"
TERM=xterm "${run[@]}" run.name=c >/dev/null 2>"$work/log"
! grep -q $'\x1b' "$work/log" || fail "a live line in a pipe"
echo passed
