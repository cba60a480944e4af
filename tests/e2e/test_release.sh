#!/usr/bin/env bash
# A release as a dry run: the tarball builds without git, checksums and signature hold, a changed file does not; the list
# of parts is CycloneDX; an installation may be moved; files of packagers are what their tools read.
. "${SOURCE:?}/tests/small_run.sh" || exit
for program in git cmake ssh-keygen; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
[ -e "$SOURCE/.git" ] || { echo "skipped: the source is no checkout"; exit 77; }
version=$(sed -n 's/^project(dtrain VERSION \([0-9.]*\).*/\1/p' "$SOURCE/CMakeLists.txt")

# -- one version
[ "$("$DTRAIN" --version)" = "dtrain $version" ] || fail "another version than CMakeLists.txt"
[[ $("$DTRAIN" info | head -1) =~ ^"dtrain   $version, git "(v[0-9][^ ]*|[0-9a-f]{7,})(-dirty)?$ ]] ||
    fail "no git description: $("$DTRAIN" info | head -1)"
grep -x "ARG VERSION=$version" "$SOURCE/launch/docker/Dockerfile" >/dev/null || fail "launch/docker/Dockerfile has another version"

# -- a release is of a tag with notes; a dry run is of any commit
git -C "$SOURCE" describe --tags --exact-match >/dev/null 2>&1 || exits 2 'the tree has changes\|is not the tag' "$SOURCE/launch/release/release.sh" "$work/none"
exits 0 '' "$SOURCE/launch/release/release.sh" --help
grep -q 'release.sh \[--dry-run\] OUT_DIR' "$work/out" || fail "--help: $(cat "$work/out")"
unset "${!GIT_@}"
out=$work/release
exits 0 '' env -u XDG_CACHE_HOME "$SOURCE/launch/release/release.sh" --dry-run "$out" # with the ccache of who builds
exits 2 'is not empty' "$SOURCE/launch/release/release.sh" --dry-run "$out"
tar -tzf "$out/dtrain-$version.tar.gz" >"$work/files"
! grep -v "^dtrain-$version/" "$work/files" || fail "files outside the tarball's folder"
! grep '/\.git/' "$work/files" || fail "git in the tarball"
verify() { ssh-keygen -Y verify -f "$out/allowed_signers" -I maintainers@dtrain.example -n dtrain -s "$out/SHA256SUMS.sig" <"$out/SHA256SUMS"; }
(cd "$out" && sha256sum --check --quiet SHA256SUMS) && verify >/dev/null || fail "checksums or signature"
[ "$(wc -l <"$out/SHA256SUMS")" = "$(find "$out" -name 'dtrain*' | wc -l)" ] || fail "a file without a checksum"
if command -v lintian >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    lintian --allow-root --fail-on error,warning "$out"/dtrain_*.deb >"$work/out" 2>&1 || fail "lintian: $(cat "$work/out")"
fi
sed -i 's/^./0/' "$out/SHA256SUMS"
! verify >/dev/null 2>&1 || fail "the signature of changed checksums holds"
grep -q '^### Added' "$out/dtrain-$version.md" || fail "no notes of the changelog"

# -- the list of parts
"$python" - "$out/dtrain-$version.cdx.json" <<'PY' || fail "the list of parts"
import json, sys
parts = json.load(open(sys.argv[1]))
names = [c["name"] for c in parts["components"]]
assert len(names) == len(set(names)) >= 15, names
assert any("yaml" in n for n in names) and any("lmdb" in n for n in names), names
PY
if "$python" -c 'import cyclonedx.validation.json' 2>/dev/null; then
    "$python" - "$out/dtrain-$version.cdx.json" <<'PY' || fail "not CycloneDX"
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(error) if error else 0)
PY
else
    echo "CycloneDX's schema left out: no cyclonedx-python-lib[validation]"
fi

# -- an installation that was moved: files, templates and ranks
cmake --install "$BUILD" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
share=$work/moved/share
for file in doc/dtrain/{LICENSE,README.md,CHANGELOG.md,docs/reference/keys.md,docs/monitoring/{alerts.yaml,grafana.json}} \
    dtrain/configs/fusion.yaml dtrain/launch/{mpi_env.sh,slurm/train.sbatch} man/man1/dtrain.1 \
    bash-completion/completions/dtrain zsh/site-functions/_dtrain fish/vendor_completions.d/dtrain.fish; do
    [ -s "$share/$file" ] || fail "not installed: $file"
done
grep -roE --include='*.md' '\]\([^)#:]+[)#]' "$share/doc/dtrain" | while IFS=: read -r page link; do
    link=${link:2:-1}
    [ -e "$(dirname "$page")/$link" ] || echo "$page: $link"
done >"$work/broken"
! grep -v 'tests/cuda/moved_bytes.txt$' "$work/broken" || fail "links of installed pages"
! grep -rlE "$work/first" "$work/moved" || fail "installed files name the prefix"
small_data "$work"
config=$(small_config "$work")
moved=$work/moved/bin/dtrain
exits 0 '' "$moved" "$config" train.max_steps=2 run.name=moved
exits 0 '' "$moved" launch slurm --print --nodes 1 "$config"
grep -q '^#SBATCH' "$work/out" || fail "no template beside the moved program"
! have_mpi || exits 0 '' "${ranks[@]}" 2 "$moved" "$config" train.max_steps=2 run.name=moved2

# -- files of packagers
spack=$SOURCE/launch/release/spack
"$python" -m py_compile "$spack"/*.py || fail "Spack's packages"
if "$python" -m flake8 --version >/dev/null 2>&1; then # with the exceptions of `spack style` for packages
    "$python" -m flake8 --max-line-length 99 --extend-ignore E203,W503,F403,F405 "$spack"/*.py || fail "Spack's packages: style"
else
    echo "the style of Spack's packages left out: no flake8"
fi
needs=$(sed -En 's/^(dt_find_(module|library)\([A-Z0-9_]+|pkg_check_modules\([A-Z0-9_]+ QUIET IMPORTED_TARGET) ([a-z0-9._-]+).*/\3/p' "$SOURCE/launch/libraries.cmake")
[ "$needs" ] || fail "libraries.cmake asks for nothing"
for need in $needs; do
    case $need in yaml-0.1) need=libyaml ;; libxxhash) need=xxhash ;; libjpeg) need=libjpeg-turbo ;; spng) need=libspng ;; libtiff-4) need=libtiff ;;
        sndfile) need=libsndfile ;; libmpg123) need=mpg123 ;; sqlite3) need=sqlite ;; zlib) need=zlib-api ;; libzstd) need=zstd ;;
        libcurl) need=curl ;; libprotobuf-c) need=protobuf-c ;; dnnl) need=onednn ;; *) ;; esac
    grep -q "depends_on(\"$need[\"@+]" "$spack/package.py" || fail "Spack's package does not depend on $need"
done
spython=$(dirname "$(command -v "$python")")/spython
if [ -x "$spython" ]; then
    "$spython" recipe --parser singularity "$SOURCE/launch/docker/dtrain.def" >"$work/recipe" 2>&1 && grep -q '^ADD [^ ]* /src' "$work/recipe" ||
        fail "Apptainer's definition: $(cat "$work/recipe")"
else
    echo "Apptainer's definition left out: no spython"
fi
sed -n '/^%post/,/^%test/p' "$SOURCE/launch/docker/dtrain.def" | sed '/^%/d' >"$work/post.sh"
bash -n "$work/post.sh" || fail "Apptainer's definition: %post"
for word in $(grep -o '/src/[a-z/]*\.sh' "$work/post.sh"); do [ -x "$SOURCE/${word#/src/}" ] || fail "Apptainer's definition calls $word"; done
echo passed
