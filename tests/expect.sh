# Source this in script tests of one command after the other, without training. Gives
#   $dtrain $python $dir   the program, an interpreter, and a temporary directory, which is entered and removed at exit
#   py FUNCTION WORD …     calls a function of the test's Python file, test_x.py beside test_x.sh, or of small_set.py
#   fail WORD …            says so and ends the test
#   expect CODE TEXT COMMAND …  ends the test unless the command exits with CODE and says TEXT; its output is in out.txt
set -euo pipefail
dtrain=$(realpath "${DTRAIN:?}")
python=${PYTHON:-python3} this_test=$(realpath "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

py() { "$python" "$SOURCE/tests/call.py" "$this_test" "$@"; }

fail() {
    echo "FAILED: $*"
    exit 1
}

expect() {
    local code=0 want=$1 text=$2
    shift 2
    "$@" >out.txt 2>&1 || code=$?
    [ $code = "$want" ] || fail "$*: exit $code, not $want: $(cat out.txt)"
    grep -qF -- "$text" out.txt || fail "$*: '$(cat out.txt)' does not say '$text'"
}
