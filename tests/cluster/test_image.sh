#!/usr/bin/env bash
# launch/docker/Dockerfile, built by buildah on a Debian that debootstrap makes: size, labels, user, no compiler, and the
# quick start's training inside. Minutes, and packages from Debian: with FULL=1.
. "${SOURCE:?}/tests/small_run.sh" || exit
[ "${FULL:-}" = 1 ] || { echo "skipped: builds an image from Debian's packages; FULL=1 does"; exit 77; }
PATH+=:/usr/sbin
for program in buildah debootstrap; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: debootstrap needs root"; exit 77; }

mkdir -p "$work/storage"
export STORAGE_DRIVER=${STORAGE_DRIVER:-overlay} BUILDAH_ISOLATION=chroot
b() { buildah --root "$work/storage/root" --runroot "$work/storage/run" "$@"; }
trap 'b umount --all >/dev/null 2>&1; b rm --all >/dev/null 2>&1; clean_up' EXIT

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
debootstrap --variant=minbase bookworm "$work/base" "$mirror" >"$work/log" 2>&1 || fail "debootstrap from $mirror"
rm -rf "$work"/base/var/cache/apt/* "$work"/base/var/lib/apt/lists/* "$work"/base/usr/share/{doc,man,locale}/* # as in -slim
from=$(b from scratch)
b add -q "$from" "$work/base" / >"$work/log" 2>&1 || fail "the base"
b commit -q "$from" localhost/base >"$work/log" 2>&1 || fail "the base"
# from what a release's tarball holds
mkdir "$work/source"
git -C "$SOURCE" archive HEAD | tar -x -C "$work/source" || fail "git archive"
(cd "$work/source" && b build -f launch/docker/Dockerfile --build-arg BASE=localhost/base --build-arg REVISION=test \
    --ulimit nofile=1024:1024 -t localhost/dtrain .) >"$work/log" 2>&1 || fail "buildah build"

image=$(b from --pull-never localhost/dtrain)
root=$(b mount "$image")
mib=$(du -xsm "$root" | cut -f1)
[ "$mib" -lt 200 ] || fail "the image has $mib MiB"
for compiler in cc gcc g++ clang ld as nvcc; do
    [ ! -e "$root/usr/bin/$compiler" ] || fail "there is a $compiler in the image"
done
[ "$(b inspect --format '{{.OCIv1.Config.User}}' "$image")" = 1000:1000 ] || fail "the image's user"
b inspect "$image" | grep '"org.opencontainers.image.revision": "test"' >/dev/null || fail "no labels"
b inspect "$image" | grep '"org.opencontainers.image.base.name": "localhost/base"' >/dev/null || fail "no label of the base"
chroot "$root" apt-get check >"$work/log" 2>&1 || fail "apt does not work in the image"
# scanners read dpkg's list, and these records of what came without dpkg
diff -r "$root/opt/dtrain/packages" "$root/var/lib/dpkg/status.d" >"$work/log" || fail "no records of the libraries"
[ "$(grep -l '^Version: ' "$root"/var/lib/dpkg/status.d/* | wc -l)" -ge 15 ] && [ -e "$root/var/lib/dpkg/status.d/dtrain" ] || fail "no records"

inside() { b run --user 1000:1000 --workingdir /data --volume "$work/data:/data" "$image" -- "$@"; }
mkdir -p "$work/data"
chown 1000:1000 "$work/data"
cp -r "$SOURCE/configs" "$work/data/"
[ "$(inside id -u)" = 1000 ] || fail "not user 1000 inside"
as_other() { b run --user 1000690000:0 --workingdir /data --volume "$work/data:/data" "$image" -- dtrain-user "$@"; } # as OpenShift does
[ "$(as_other id -un)" = mpiuser ] || fail "a user id that a platform chose has no name inside"
inside dtrain synth biometric datasets/biometric-raw >"$work/log" 2>&1 || fail "synth inside"
inside dtrain pack datasets/biometric-raw datasets/biometric.lmdb >"$work/log" 2>&1 || fail "pack inside"
inside mpirun --oversubscribe --bind-to none -np 2 dtrain configs/fusion.yaml ${STEPS:+train.max_steps=$STEPS} >"$work/out" 2>"$work/log" ||
    fail "the quick start's training inside"
grep -q '"split":"test"' "$work/out" || fail "no test metrics"
tail -n 1 "$work/out" | cut -c1-120

# what Apptainer would do by its definition, as steps of buildah's
spython=$(dirname "$(command -v "$python")")/spython
if [ -x "$spython" ]; then
    "$spython" recipe --parser singularity "$work/source/launch/docker/dtrain.def" |
        sed '/^HEALTHCHECK/d; /^CMD/d; s/^FROM .*/FROM localhost\/base/; /^LABEL/s/ \([^ ]*\)$/="\1"/' >"$work/source/Steps"
    (cd "$work/source" && b build -f Steps --ulimit nofile=1024:1024 -t localhost/definition .) >"$work/log" 2>&1 || fail "dtrain.def"
    image=$(b from --pull-never localhost/definition)
    inside dtrain configs/fusion.yaml run.name=definition train.max_steps=2 >"$work/out" 2>"$work/log" || fail "training by dtrain.def's image"
    grep -q '"split":"test"' "$work/out" || fail "no test metrics by dtrain.def's image"
else
    echo "Apptainer's definition left out: no spython"
fi
echo "image of $mib MiB: user 1000, no compiler, trains the quick start"
