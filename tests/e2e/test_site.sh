#!/usr/bin/env bash
# The docs site builds without a warning, has every page and a search index, and its order is that of README. A broken link and
# a page that no other page links to are errors.
. "${SOURCE:?}/tests/small_run.sh" || exit
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
code=0
"$SOURCE/docs/site/make_site.sh" "$work/site" >"$work/out" 2>"$work/log" || code=$?
[ $code != 77 ] || { echo "skipped: no Sphinx from PyPI"; exit 77; }
[ $code = 0 ] || fail "the site"
for page in "$SOURCE"/{README,CHANGELOG,CONTRIBUTING,SECURITY}.md "$SOURCE"/docs/*.md "$SOURCE"/docs/*/*.md; do
    page=${page#"$SOURCE"/}
    [ -s "$work/site/${page%.md}.html" ] || fail "the site lacks $page"
done
grep -q 'checkpoint' "$work/site/searchindex.js" || fail "no search index"
[ -s "$work/site/search.html" ] && grep -q 'README.html' "$work/site/index.html" || fail "no search page, or no first page"
# the first pages of the navigation, as README lists them
listed=$(sed -n '/^## Where to read on/,$s/^[0-9]*\. \[[^]]*\](\([^)]*\)\.md).*/\1.html/p' "$SOURCE/README.md" | head -n 5)
shown=$(grep -o 'class="toctree-l1[^>]*><a [^>]*href="[^"]*"' "$work/site/README.html" | sed 's/.*href="//; s/"$//' | head -n 5)
[ "$listed" ] && [ "$shown" = "$listed" ] || fail "the navigation is $shown"

mkdir -p "$work/small/.cache" "$work/small/docs"
cp -r "$SOURCE/docs/site" "$work/small/docs/"
cp "$SOURCE/CMakeLists.txt" "$work/small/"
ln -s "$SOURCE/.cache/docs-venv" "$work/small/.cache/"
site() { printf '# a\n\n## Where to read on\n\n%s\n' "$1" >"$work/small/README.md"; "$work/small/docs/site/make_site.sh" "$work/small/out"; }
printf '# b\n' >"$work/small/docs/b.md"
exits 0 '' site '[b](docs/b.md#b)'
exits 1 'docs/c' site '[b](docs/b.md), [c](docs/c.md)'
exits 1 "docs/b': 'nothing'" site '[b](docs/b.md#nothing)'
exits 1 "b.md.*isn't included" site 'none'
echo passed
