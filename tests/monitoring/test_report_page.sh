#!/usr/bin/env bash
# report.html in a browser, headless Chromium, at 1280 and 400 pixels, light and dark: nothing is wider than the window, a
# click sorts, the pointer names values, the dark page is dark, and nothing is asked of a network.
. "${SOURCE:?}/tests/expect.sh" || exit
browser=$(command -v chromium || command -v chromium-browser) || { echo "skipped: no chromium"; exit 77; }
"$python" -c 'import PIL' 2>/dev/null || { echo "skipped: no Pillow"; exit 77; }

py write_run photos 400 photos
py write_worst photos 400
"$dtrain" report photos >/dev/null
for seed in 1 2 3; do py write_run "seed=$seed" 200 "seed=$seed" cat 20 $seed; done
"$dtrain" report seed=* -o compare.html >/dev/null
mv photos/report.html report.html
look() { # PAGE WIDTH SCHEME WORD …
    timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$dir/browser" \
        --window-size="$2,2400" --blink-settings=preferredColorScheme="$([ "$3" = dark ] && echo 0 || echo 1)" \
        --virtual-time-budget=3000 "${@:4}" "file://$dir/$1" 2>err.txt || fail "$browser: $(cat err.txt)"
}
for page in report compare; do
    for width in 1280 400; do
        py probe $page.html $width >page.html
        look page.html $width light --dump-dom >dom.html
        py check_probe dom.html $page $width || fail "$page at $width"
        [ $page$width = report1280 ] || [ "${FULL:-}" ] || continue
        for scheme in light dark; do look page.html $width $scheme --screenshot="$dir/$page-$width-$scheme.png"; done
        py check_dark $page-$width-light.png $page-$width-dark.png $width
    done
done
# what is folded is printed
py write_run many 100 many ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz 10
"$dtrain" report many -o shut.html >/dev/null
sed 's/<details>/<details open>/' shut.html >open.html
for page in shut open; do look $page.html 1280 light --print-to-pdf="$dir/$page.pdf"; done
pages() { grep -ac '/Type /Page$' "$1"; }
[ "$(pages shut.pdf)" = "$(pages open.pdf)" ] || fail "printed are $(pages shut.pdf) pages of $(pages open.pdf)"
[ -z "${KEEP:-}" ] || cp ./*.png "$KEEP"
