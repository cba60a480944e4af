#!/usr/bin/env bash
# The words agree with the code: README and docs/ against the tables of keys and operations, the tree and the verbs.
#   test_docs.sh           compares
#   test_docs.sh --write   puts what is generated into docs/reference/
# Wants DTRAIN (the binary) and SOURCE (the repository).
# Thousands of words are looked up: a process for each would take most of the time.
set -euo pipefail
shopt -s extglob
dtrain=$(realpath "$DTRAIN")
cd "$SOURCE"
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
# -- versions of formats
while read -r name version; do
    grep -qE "^\| ${name,,} \| .* \| $version \|" docs/reference/formats.md || fail "formats.md: not $name $version of formats.h"
done < <(sed -n 's/^    DT_FORMAT_\([A-Z0-9]*\) = \([0-9]*\).*/\1 \2/p' runtime/base/formats.h)
verbs() { # the verbs, those of `dtrain data` and `dtrain comm` behind it, targets behind `launch`
    sed -n 's/^VERB(\([a-z0-9]*\),.*/\1/p' launch/cmds.def
    sed -n 's/^VERB(\([a-z0-9]*\),.*/launch \1/p' launch/targets/launch_targets.def
    sed -n 's/^VERB(\([a-z]*\),.*/data \1/p' launch/data/data_cmds.def
    echo 'comm bench'
}

# -- what the program prints: from a line on, to the next empty line or, where a page ends in it, to the end
help_texts() {
    local verb
    printf '## dtrain\n\n```\n%s\n```\n' "$("$dtrain" --help)"
    verbs | sort | while read -r verb; do
        printf '\n## dtrain %s\n\n```\n%s\n```\n' "$verb" "$("$dtrain" $verb --help)"
    done
}
operations() { "$dtrain" keys data.augment --markdown | sed -n '/^| operation/,$p'; }
layers() { "$dtrain" keys model.layers --markdown | sed -n '/^| layer/,$p'; }
generated() { # page, first line, whether it goes on to the page's end, command
    local page=$1 first=$2 to_end=$3 now
    shift 3
    now=$(awk -v first="$first" -v to_end="$to_end" '
        index($0, first) == 1 {inside = 1} inside && !to_end && $0 == "" {exit} inside' "$page")
    [ "$now" = "$("$@")" ] && return
    if [ "$write" ]; then
        "$@" >"$page.new"
        awk -v first="$first" -v to_end="$to_end" -v text="$page.new" '
            index($0, first) == 1 {inside = 1; while ((getline line < text) > 0) print line}
            inside && !to_end && $0 == "" {inside = 0} !inside' "$page" >"$page.whole"
        mv "$page.whole" "$page"
        rm "$page.new"
    else
        diff <(echo "$now") <("$@") || fail "$page is not what the program prints: run test_docs.sh --write (see CONTRIBUTING.md)"
    fi
}
words() { # of a key, as a table
    printf '| `%s` | |\n|---|---|\n' "$1"
    "$dtrain" keys "$1" | sed -z 's/\n \{21\}/ /g' | sed -n 's/|/\\|/g; s/^      \([a-z0-9_]*\)  *\(.*\)/| `\1` | \2 |/p'
}
prometheus() { # the names of the prometheus sink, as a table
    printf '| metric | type | labels | |\n|---|---|---|---|\n'
    sed -nE -e 's/^NUMBER\([a-z_]*, "([^"]*)", "([^"]*)", "(.*)"\)$/| `\1` | \2 | | \3 |/p' \
        -e 's/^FAMILY\([a-z_]*, "([^"]*)", "([^"]*)", "([^"]*)", "(.*)"\)$/| `\1` | \2 | \3 | \4 |/p' \
        runtime/observe/prometheus.def
}
ledger() { # where the time of a run goes
    printf '| part of a run | what |\n|---|---|\n'
    sed -nE 's/^GOODPUT\(([a-z]*), "([^"]*)".*/| `\1` | \2 |/p' runtime/observe/goodput.def
}
write=$([ "${1:-}" != --write ] || echo yes)
generated docs/reference/keys.md '| key | type' 1 "$dtrain" keys --markdown
generated docs/reference/augmentation.md '| operation | parameters' 0 operations
generated docs/reference/models.md '| layer | keys' 0 layers
for key in train.optimizer.name train.schedule.name train.loss; do
    generated docs/reference/training.md "| \`$key\` |" 0 words $key
done
generated docs/reference/metrics.md '| `eval.metrics` |' 0 words eval.metrics
generated docs/reference/metrics.md '| `metrics.sinks` |' 0 words metrics.sinks
generated docs/reference/metrics.md '| metric | type' 0 prometheus
generated docs/reference/metrics.md '| part of a run' 0 ledger
generated docs/reference/cli.md '## dtrain' 1 help_texts

# -- dashboard and alert rules name metrics that there are; the dashboard has all of GPUs
for name in $(grep -ohE '\b(dtrain|process|DCGM_FI)_[A-Za-z_]+' docs/monitoring/*); do
    grep -qE "\"${name%_@(sum|count|bucket)}\"" runtime/observe/prometheus.def || fail "docs/monitoring names $name, and no metric is called so"
done
for name in $(grep -oE 'DCGM_FI_[A-Z_]+' runtime/observe/prometheus.def); do
    grep -q "$name{" docs/monitoring/grafana.json || fail "docs/monitoring/grafana.json does not show $name"
done

# -- the config that jobs on Kubernetes begin with leaves out no default sink, and serves Prometheus, as k8s/README.md does
default=$("$dtrain" keys metrics.sinks | sed -n 's/.*default \[\([^]]*\)\].*/\1/p')
for page in k8s/config/config.yaml k8s/README.md; do
    grep -qF "sinks: [$default, prometheus]" "$page" || fail "$page: sinks are not [$default, prometheus]"
done

# -- every exit code is explained
while read -r code; do
    grep -q "^| $code |" docs/reference/exit-codes.md || fail "docs/reference/exit-codes.md lacks $code"
done < <(sed -n 's/^ *DT_[A-Z_]* = \([0-9]*\).*/\1/p' runtime/base/core.h)

pages=(README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs/*.md docs/*/*.md)
# -- lines of 120 columns at most, but for tables; what --help of any verb prints has 100
for page in "${pages[@]}"; do
    columns=120
    [ "$page" != docs/reference/cli.md ] || columns=100
    long=$(LC_ALL=C.UTF-8 grep -nE "^.{$((columns + 1))}" "$page" | grep -vE '^[0-9]+: *\|' | cut -d: -f1 | paste -sd' ') || true
    [ -z "$long" ] || fail "$page has lines of more than $columns columns: $long"
done
[ "$(wc -l <README.md)" -le 150 ] || fail "README.md has more than 150 lines"

# `words in backticks` of a page, one a line, without fenced blocks
quoted() {
    awk '/^ *```/ {fenced = !fenced; next} !fenced' "$1" | grep -o '`[^`]*`' | tr -d '`'
}

# -- every path of the repository that a page names is there: below the root or below runtime/;
#    a bare file name anywhere; <name> and * stand for anything
declare -A named # names of files
while read -r name; do named[$name]=1; done < <(find runtime data models launch tests -type f -printf '%f\n')
is_named() { # glob
    if [[ $1 == *\** ]]; then [ -n "$(find runtime data models launch tests -name "$1" -print -quit)" ]; else [ "${named[$1]:-}" ]; fi
}
tops='runtime|data|models|launch|configs|docs|tests|\.ci|base|store|config|batch|graph|backend|exec|comm|checkpoint|onnx|observe|metrics|eval|train'
for page in "${pages[@]}"; do
    while read -r word; do
        glob=${word//<*([a-z])>/*}
        if [[ $word =~ ^($tops)/[A-Za-z0-9_./*\<\>-]*$ ]]; then
            compgen -G "$glob" >/dev/null || compgen -G "runtime/$glob" >/dev/null ||
                fail "$page names $word, which is not there"
        elif [[ $word =~ ^[A-Za-z0-9_*\<\>]+\.(c|h|def|py|sh|inc)$ ]]; then
            is_named "$glob" ||
                fail "$page names $word, and no file is called so"
        fi
    done < <(quoted "$page")
done

# -- links between pages, and to their headings: in lower case, without punctuation, with - for a space
headings() { awk '/^ *```/ {fenced = !fenced; next} !fenced' "$1" | sed -n 's/^##* //p' | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'; }
declare -A known # the headings of a file
for page in "${pages[@]}"; do
    case $page in */*) folder=${page%/*} ;; *) folder=. ;; esac
    while IFS='#' read -r target heading; do
        file=$folder/$target
        [ -n "$target" ] || file=$page
        [ -e "$file" ] || fail "$page links to $target, which is not there"
        [ "$heading" ] || continue
        [ "${known[$file]:-}" ] || known[$file]=$'\n'$(headings "$file")$'\n'
        [[ ${known[$file]} == *$'\n'"$heading"$'\n'* ]] || fail "$page links to $target#$heading, and no heading is called so"
    done < <(grep -o ']([^) ]*)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https\?://' || true)
done

# -- tests that SECURITY.md names by their function are there
while read -r name; do
    [[ ! $name =~ ^[a-z]+(_[a-z0-9]+){2,}$ ]] || grep -rqE "TEST(_WITH)?\($name[,)]" tests || fail "SECURITY.md names the test $name, which is not there"
done < <(quoted SECURITY.md)

# -- every fuzz target names the files whose lines it is to reach
for target in tests/fuzz/fuzz_*.c; do
    parser=$(sed -n 's|^// Parser: ||p' "$target" | tr ' ' '\n' | sed 's|!.*||')
    [ "$parser" ] && ls $parser >/dev/null 2>&1 || fail "$target names no file that is there after // Parser:"
done

# -- every script that makes golden files is in the list of what is generated
for script in tests/golden/make_*.py; do
    grep -q "python3 $script" CONTRIBUTING.md || fail "CONTRIBUTING.md does not say when $script is run"
done

# -- every verb has its words, and every config key that a page names exists
while read -r verb; do
    written=("${pages[@]/docs\/reference\/cli.md/README.md}")
    grep -qE "dtrain\`? $verb\b" "${written[@]}" || fail "no page but the list of verbs speaks of dtrain $verb"
done < <(verbs)
keys=$'\n'$("$dtrain" keys | grep '^[a-z]')$'\n'
for page in "${pages[@]}"; do
    while read -r word; do
        key=${word%%[=: ]*}
        [[ $key =~ ^(run|device|data|model|train|eval|checkpoint|metrics|comm)(\.[a-z_*]+)+$ ]] || continue
        [[ $key =~ \.(c|h|mdb|jsonl|safetensors|augment\..*)$ ]] && continue
        [[ $keys == *$'\n'"$key"[$'\n'.]* ]] ||
            fail "$page names the key $key, which dtrain keys does not know"
    done < <(quoted "$page")
done

[ $failed = 0 ] && echo "README and docs/ agree with the code"
exit $failed
