#!/usr/bin/env bash
# Builds the docs site: docs/site/make_site.sh [OUT_DIR], by default build/site. Sphinx comes from PyPI into .cache/docs-venv. A
# broken link, and a page that no other page links to, are errors.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/site}
venv=$PWD/.cache/docs-venv wheels="sphinx==9.0.* myst-parser==5.* furo==2025.*"
if [ "$(cat "$venv/complete" 2>/dev/null)" != "$wheels" ]; then
    # shellcheck disable=SC2086 # a list of words
    { python3 -m venv "$venv" && "$venv/bin/pip" -q install $wheels; } || { echo "docs site: no Sphinx from PyPI" >&2; exit 77; }
    echo "$wheels" >"$venv/complete"
fi
"$venv/bin/sphinx-build" -q -W --keep-going -n -j auto -c docs/site -d "$out/.doctrees" . "$out"
echo '<!DOCTYPE html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">dtrain</a>' >"$out/index.html"
echo "docs site: $out/index.html"
