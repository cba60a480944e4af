#!/usr/bin/env bash
# Makes the files of a release from the commit that is checked out: launch/release/release.sh [--dry-run] OUT_DIR. In OUT_DIR:
#   dtrain-VERSION.tar.gz      the source, whose build needs no git
#   dtrain_VERSION_ARCH.deb    for the release of Debian or Ubuntu that this runs on
#   dtrain-VERSION-….whl       the wheel (not in a dry run), by Python's `build` from PyPI, on Debian 12
#   dtrain-VERSION.cdx.json    the list of parts (CycloneDX)
#   dtrain-VERSION.md          release notes: docs/releases/VERSION.md, and the version's section of CHANGELOG.md
#   SHA256SUMS, SHA256SUMS.sig signed with the SSH key SIGNING_KEY; allowed_signers has its public half
# The tarball is unpacked and built, and what was built is asked for its version, before anything is signed. A release wants
# a clean tree, the tag vVERSION and a section [VERSION] in CHANGELOG.md. --dry-run wants neither, takes [Unreleased] where the section is not there, and signs
# with a key that it throws away. The version is that of project() in CMakeLists.txt. Nothing is published.
set -euo pipefail
dry=
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }
[ "${1:-}" != --help ] || { usage; exit; }
[ "${1:-}" != --dry-run ] || { dry=1; shift; }
[ $# = 1 ] || { usage >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(dtrain VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=dtrain-$version signer=maintainers@dtrain.example
die() { echo "release: $*" >&2; exit 2; }

[ -z "$(ls -A "$out")" ] || die "$out is not empty"
others=$(git grep -nE '(dtrain[:_-]|newTag: |ARG VERSION=)[0-9]+(\.[0-9]+){2}' -- README.md docs k8s launch ':!docs/releases' ':!launch/release' | grep -vF "$version" || true)
[ -z "$others" ] || die "CMakeLists.txt has version $version, and there are others:"$'\n'"$others"
section=$version
if [ -n "$dry" ]; then
    grep -q "^## \[$version\]" CHANGELOG.md || section=Unreleased
else
    [ -z "$(git status --porcelain)" ] || die "the tree has changes: commit them, or --dry-run"
    [ "$(git describe --tags --exact-match 2>/dev/null)" = "v$version" ] || die "HEAD is not the tag v$version"
    [ -e "docs/releases/$version.md" ] || die "docs/releases/$version.md: write the release notes"
    [ -n "${SIGNING_KEY:-}" ] || die "SIGNING_KEY: the SSH key to sign with"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "release: notes"
{
    [ ! -e "docs/releases/$version.md" ] || { cat "docs/releases/$version.md"; echo; }
    awk -v head="## [$section]" 'index($0, head) == 1 {on = 1; next} on && /^## / {exit} on' CHANGELOG.md >"$work/section"
    grep -q . "$work/section" || die "CHANGELOG.md has no section [$section]"
    cat "$work/section"
} >"$out/$name.md"

echo "release: source"
git -c tar.umask=022 archive --format=tar --prefix="$name/" HEAD | gzip -n9 >"$out/$name.tar.gz"
tar -C "$work" -xzf "$out/$name.tar.gz"

echo "release: build of the tarball"
# what ccache has of the same source in another folder counts, where the build is in it by the same name
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
export GIT_CEILING_DIRECTORIES=$work
TARGETS="dtrain help_files" "$work/$name/launch/build.sh" "$work/$name/build" -DDTRAIN_TESTS=OFF -DDTRAIN_CUDA="${DTRAIN_CUDA:-OFF}" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; die "the tarball does not build"; }
[ "$("$work/$name/build/dtrain" --version)" = "dtrain $version" ] || die "the built program is not version $version"
cmake --build "$work/$name/build" --target sbom >"$work/log" 2>&1 || { cat "$work/log" >&2; die "no list of parts"; }
cp "$work/$name/build/$name.cdx.json" "$out/"
if command -v dpkg-shlibdeps >/dev/null; then
    cpack --config "$work/$name/build/CPackConfig.cmake" -B "$work/deb" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "no .deb"; }
    cp "$work"/deb/*.deb "$out/"
fi

[ -n "$dry" ] || "${PYTHON:-python3}" -m build --wheel -C cmake.define.DTRAIN_CUDA="${DTRAIN_CUDA:-OFF}" -o "$out" "$work/$name" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; die "no wheel"; }

echo "release: checksums"
(cd "$out" && sha256sum -- dtrain* >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "$dry" ]; then
    ssh-keygen -q -t ed25519 -N '' -C dry-run -f "$work/key"
    SIGNING_KEY=$work/key
fi
ssh-keygen -Y sign -q -n dtrain -f "$SIGNING_KEY" "$out/SHA256SUMS"
echo "$signer namespaces=\"dtrain\" $(ssh-keygen -y -f "$SIGNING_KEY")" >"$out/allowed_signers"
ssh-keygen -Y verify -f "$out/allowed_signers" -I "$signer" -n dtrain -s "$out/SHA256SUMS.sig" <"$out/SHA256SUMS" >/dev/null
ls -l "$out"
[ -n "$dry" ] || echo "release: publish the files and the tag; the sha256 of $name.tar.gz goes into launch/release/spack/package.py"
