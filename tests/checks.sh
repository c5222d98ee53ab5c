# shellcheck shell=sh
# Checks of the kin program for the test that sources this: a temporary folder, no settings from this machine, and counters.
#
# Expects the path of the program in $1; mkmodel is in the same folder. A test sets `claim` before its checks and ends with `tally`.
kin=$1
# shellcheck disable=SC2034 # the tests use it
mkmodel=$(dirname "$kin")/mkmodel
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
for name in $(env | sed -n 's/^\(\(KIN\|LLAMA\)_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export XDG_CACHE_HOME="$dir/cache" XDG_CONFIG_HOME="$dir/config"
out=$dir/out err=$dir/err
n_checks=0 n_failed=0 claim=

fail() {
    echo "FAILED: $claim: $*"
    head -n 5 "$out" "$err"
    n_failed=$((n_failed + 1))
}

# status N COMMAND...: runs it and expects status N. stdout and stderr stay in $out and $err. A program that hangs is stopped (124).
status() {
    want=$1
    shift
    case $1 in "$kin" | env) set -- timeout 300 "$@" ;; esac
    "$@" >"$out" 2>"$err" </dev/null
    got=$?
    n_checks=$((n_checks + 1))
    [ $got -eq "$want" ] || fail "status $got, not $want: $*"
}
says() { grep -q -e "$2" "$1" || fail "no '$2' in $(basename "$1")"; } # FILE PATTERN
says_not() { ! grep -q -e "$2" "$1" || fail "'$2' in $(basename "$1")"; }
silent() { [ ! -s "$1" ] || fail "$(basename "$1") is not empty"; }
lines() { [ "$(wc -l <"$1")" -eq "$2" ] || fail "$(basename "$1") has $(wc -l <"$1") lines, not $2"; }
same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }

# Prints the counters and returns the test's status.
tally() {
    echo "$n_checks checks, $n_failed failed"
    [ "$n_failed" -eq 0 ]
}
