#!/usr/bin/env bash
# The words agree with the code: README and docs/ against the table of keys, the tree and the verbs.
#   test_docs.sh           compares
#   test_docs.sh --write   puts the table of keys into docs/config.md
# Wants DTRAIN (the binary) and SOURCE (the repository).
set -euo pipefail
dtrain=$(realpath "$DTRAIN")
cd "$SOURCE"
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# -- docs/config.md ends in the table that the program prints
table='^| key | type'
if [ "${1:-}" = --write ]; then
    sed -i "/$table/,\$d" docs/config.md
    "$dtrain" keys --markdown >>docs/config.md
fi
diff <(sed -n "/$table/,\$p" docs/config.md) <("$dtrain" keys --markdown) ||
    fail "docs/config.md is not what dtrain keys --markdown prints (see CONTRIBUTING.md, generated files)"

pages=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md)
# `words in backticks` of a page, one a line, without fenced blocks
quoted() {
    awk '/^ *```/ {fenced = !fenced; next} !fenced' "$1" | grep -o '`[^`]*`' | tr -d '`'
}

# -- every path of the repository that a page names is there: below the root or below runtime/;
#    a bare file name anywhere; <name> and * stand for anything
tops='runtime|data|models|launch|configs|docs|tests|\.ci|base|config|batch|graph|backend|exec|comm|ckpt|metrics|train'
for page in "${pages[@]}"; do
    while read -r word; do
        glob=$(sed 's/<[a-z]*>/*/g' <<<"$word")
        if [[ $word =~ ^($tops)/[A-Za-z0-9_./*\<\>-]*$ ]]; then
            compgen -G "$glob" >/dev/null || compgen -G "runtime/$glob" >/dev/null ||
                fail "$page names $word, which is not there"
        elif [[ $word =~ ^[A-Za-z0-9_*\<\>]+\.(c|h|def|py|sh|inc)$ ]]; then
            [ -n "$(find runtime data models launch tests -name "$glob" -print -quit)" ] ||
                fail "$page names $word, and no file is called so"
        fi
    done < <(quoted "$page")
done

# -- links between pages, and to their headings: in lower case, without punctuation, with - for a space
headings() { awk '/^ *```/ {fenced = !fenced; next} !fenced' "$1" | sed -n 's/^##* //p' | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'; }
for page in "${pages[@]}"; do
    while IFS='#' read -r target heading; do
        file=$(dirname "$page")/$target
        [ -n "$target" ] || file=$page
        [ -e "$file" ] || fail "$page links to $target, which is not there"
        [ -z "$heading" ] || headings "$file" | grep -xF -- "$heading" >/dev/null || fail "$page links to $target#$heading, and no heading is called so"
    done < <(grep -o ']([^) ]*)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https\?://' || true)
done

# -- every script that makes golden files is in the list of what is generated
for script in tests/golden/make_*.py; do
    grep -q "python3 $script" CONTRIBUTING.md || fail "CONTRIBUTING.md does not say when $script is run"
done

# -- every verb has its words, and every config key that a page names exists
while read -r verb; do
    grep -qE "dtrain\`? $verb\b" README.md docs/*.md || fail "neither README nor docs/ speak of dtrain $verb"
done < <(sed -n 's/^VERB(\([a-z]*\),.*/\1/p' launch/cmds.def
         sed -n 's/^VERB(\([a-z]*\),.*/data \1/p' launch/data_cmds.def)
keys=$("$dtrain" keys | grep '^[a-z]')
for page in README.md CHANGELOG.md docs/*.md; do
    while read -r word; do
        key=${word%%[=: ]*}
        [[ $key =~ ^(run|device|data|model|train|eval|checkpoint|metrics|comm)(\.[a-z_*]+)+$ ]] || continue
        [[ $key =~ \.(c|h|mdb|jsonl|augment\..*)$ ]] && continue
        grep -qxF -- "$key" <<<"$keys" || [[ $'\n'$keys == *$'\n'"$key".* ]] ||
            fail "$page names the key $key, which dtrain keys does not know"
    done < <(quoted "$page")
done

[ $failed = 0 ] && echo "README and docs/ agree with the code"
exit $failed
