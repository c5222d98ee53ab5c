# shellcheck shell=sh disable=SC2034,SC2154 # the tests use it
# A kin serve for the test that sources this after checks.sh: start it, send requests, stop it.
command -v curl >/dev/null || { echo 'skipped: no curl' && exit 77; }
server=
trap '[ -z "$server" ] || kill -9 $server 2>/dev/null; rm -rf "$dir"' EXIT
log=$dir/log
: >"$err"

# serve OPTION...: starts it and sets $base to its address. The previous one must have ended.
serve() {
    : >"$log"
    "$kin" serve --port 0 -t 1 --metrics "$@" 2>"$log" >/dev/null </dev/null &
    server=$!
    until_says "$log" 'serving .* at http'
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$log")
}
until_says() { # FILE PATTERN
    n=0
    while [ $n -lt 2400 ] && ! grep -q -e "$2" "$1" 2>/dev/null; do
        sleep 0.05
        n=$((n + 1))
    done
    says "$1" "$2"
}
ends_well() {
    wait "$server"
    got=$?
    server=
    n_checks=$((n_checks + 1))
    [ $got -eq 0 ] || fail "the server ended with $got"
}
stop() {
    kill "$server"
    ends_well
}

# answers STATUS PATH [CURL OPTION...]: sends a request and expects STATUS. The body is in $out, the header in $dir/head.
answers() {
    want=$1 path=$2
    shift 2
    got=$(curl -s -m 240 -o "$out" -D "$dir/head" -w '%{http_code}' "$@" "$base$path")
    n_checks=$((n_checks + 1))
    [ "$got" = "$want" ] || fail "$path: status $got, not $want: $*"
}
