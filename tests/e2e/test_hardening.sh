#!/usr/bin/env bash
# The program and its modules have what the compiler has against errors in memory handling (SECURITY.md).
# Wants DTRAIN (the binary) and BUILD (its folder).
set -euo pipefail
grep -q 'CMAKE_BUILD_TYPE:.*=Debug\|DTRAIN_SANITIZE:.*=[a-z]' "$BUILD/CMakeCache.txt" && exit 77
fail() { echo "FAILED: $*"; exit 1; }

grep -q 'Type: *DYN' <(readelf -h "$DTRAIN") || fail "$DTRAIN is not a PIE"
for file in "$DTRAIN" "$BUILD"/*.so; do
    grep -q 'BIND_NOW' <(readelf -d "$file") || fail "$file is bound lazily"
    grep -q 'GNU_RELRO' <(readelf -lW "$file") || fail "$file has no RELRO"
    grep -q 'GNU_STACK .*RW ' <(readelf -lW "$file") || fail "$file has an executable stack"
done
for file in "$DTRAIN" "$BUILD"/dtrain_*.so; do
    for symbol in __stack_chk_fail __snprintf_chk; do
        grep -q " UND $symbol" <(readelf --dyn-syms -W "$file") || fail "$file was built without what calls $symbol"
    done
done
echo "hardened"
