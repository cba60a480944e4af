#!/bin/bash
# The module holds every custom kernel as machine code for each configured architecture, and as PTX for later ones:
# sm_80, 90, 100, 120 and PTX by default (runtime/backend/cuda/cuda.cmake). What the compiler made of them is not worse than
# in kernel_table.json, and none adds floats atomically.
# cuobjdump comes with the toolkit and as a Python package.
set -eu
module=$BUILD/dtrain_cuda.so
[ -e "$module" ] || { echo "skipped: dtrain_cuda.so was not built"; exit 77; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"; }
about=$(ls "$BUILD"/CMakeFiles/*/CMakeCUDACompiler.cmake)
nvcc=$(sed -n 's/^set(CMAKE_CUDA_COMPILER "\(.*\)")/\1/p' "$about")
version=$(sed -n 's/^set(CMAKE_CUDA_COMPILER_VERSION "\(.*\)")/\1/p' "$about")
python=${PYTHON:-python3}
# of the packages nvidia-cuda-cuobjdump and triton
wheel() { "$python" -c 'import importlib.util as u, sys; print(u.find_spec(sys.argv[1]).submodule_search_locations[0])' "$1" 2>/dev/null || true; }
dump=
for candidate in "$(dirname "$(realpath "$nvcc")")/cuobjdump" "$(command -v cuobjdump || true)" \
    "$(wheel nvidia)"/*/bin/cuobjdump "$(wheel triton)/backends/nvidia/bin/cuobjdump"; do
    if [ -x "$candidate" ]; then dump=$candidate; break; fi
done
[ -n "$dump" ] || { echo "skipped: no cuobjdump beside nvcc, in PATH or among $python's packages"; exit 77; }

list=$(cached DTRAIN_CUDA_ARCHITECTURES)
if [ -z "$list" ]; then
    if [ "$(printf '%s\n' 12.8 "$version" | sort -V | head -1)" = 12.8 ]; then list="80-real;90-real;100-real;120"; else list="80-real;90"; fi
    [ "$(uname -m)" != aarch64 ] || list=$(echo "$list" | sed 's/\<\(80\|100\)-real/\1/g')
fi
case $list in *native* | *all*) echo "skipped: DTRAIN_CUDA_ARCHITECTURES=$list names no architectures"; exit 77 ;; esac

# a "sm kernel" line for each kernel of each ELF file; a "ptx kernel" line for each kernel that PTX has
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
"$dump" -symbols "$module" | awk '/^arch = / {arch = $3} /^(STT_)?FUNC .*ENTRY / {print arch, $NF}' >"$tmp/have"
"$dump" -ptx "$module" | grep -a '\.entry' | sed 's/.*\.entry *\([A-Za-z0-9_$]*\).*/ptx \1/' >>"$tmp/have"
sed -n 's/^CUDA_CUSTOM_KERNEL(\([a-z0-9_]*\), *\([a-z0-9_]*\))$/\1 \2/p' "$SOURCE/runtime/backend/cuda/cuda_custom_kernels.def" >"$tmp/kernels"
[ "$(grep -c '^CUDA_CUSTOM_KERNEL' "$SOURCE/runtime/backend/cuda/cuda_custom_kernels.def")" = "$(wc -l <"$tmp/kernels")" ]
sed -n 's/^ACTIVATION[_WITH]*(\([a-z0-9_]*\),.*/\1_fwd dt_map_args\n\1_bwd dt_map_args/p' "$SOURCE/runtime/graph/activations.def" >>"$tmp/kernels"
want=
for entry in ${list//;/ }; do
    case $entry in
    *-real) want="$want sm_${entry%-real}" ;;
    *-virtual) want="$want ptx" ;;
    *) want="$want sm_$entry ptx" ;;
    esac
done
failed=0
for kind in $want; do
    # mangled: length and name of the kernel, then of its arguments
    missing=$(awk -v kind="$kind" 'NR == FNR {if ($1 == kind) names = names " " $2; next}
        !index(names, length($1) $1 length($2) $2) {print $1}' "$tmp/have" "$tmp/kernels")
    [ -z "$missing" ] || { echo "FAILED: $kind lacks" $missing; failed=1; }
done
echo "$(wc -l <"$tmp/kernels") kernels for$want (nvcc $version)"
"$python" "$SOURCE/tests/cuda/kernel_table.py" "$dump" "$version" "$module" || failed=1
exit $failed
