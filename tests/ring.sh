# shellcheck shell=sh disable=SC2034,SC2154
# Rings of real processes on loopback, for the test that sources this: a folder of its own, homes with one key, devices that join, a head
# that runs to its end, logs that are waited for. Nothing of this machine's settings; processes end with the test.
#
# Takes the test's $1, the program; mkmodel lies beside it. A test sets `claim` before it checks, and ends with `tally`. KEEP=FOLDER keeps
# the logs.
command -v curl >/dev/null || { echo 'skipped: no curl' && exit 77; } # serve_with would ask in vain until the test's time is over
kin=$1
mkmodel=$(dirname "$kin")/mkmodel
dir=$(mktemp -d) || exit 1
# shellcheck source=tests/ports.sh
. "${beside:-$(dirname "$0")}/ports.sh" # a script that is not in this folder says where it is
pids=
stop_all() {
    [ -z "${KEEP:-}" ] || cp -r "$dir" "$KEEP"
    for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$dir" "$port_lock"
}
trap stop_all EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
unset XDG_CACHE_HOME XDG_CONFIG_HOME
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
n_checks=0 n_failed=0 claim=

fail() {
    echo "FAILED: $claim: $*"
    for log in "$dir/head.log" "$dir/serve.log"; do # first, for who prints a part of this only
        [ ! -f "$log" ] || tail -n 40 "$log"
    done
    tail -n 12 "$dir"/*.log
    n_failed=$((n_failed + 1))
}
check() { # COMMAND...
    n_checks=$((n_checks + 1))
    "$@" || fail "$*"
}
says() { n_checks=$((n_checks + 1)) && grep -q -e "$2" "$1" || fail "no '$2' in $(basename "$1")"; } # FILE PATTERN
same() { n_checks=$((n_checks + 1)) && cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }

# Asks again and again, for so many seconds; four times as long where sanitizers or other tests make it slow.
wait_until() { # SECONDS COMMAND...
    n=0
    most=$(($1 * 80))
    n_checks=$((n_checks + 1))
    shift
    while [ $n -lt $most ]; do
        "$@" && return 0
        sleep 0.05
        n=$((n + 1))
    done
    fail "not within the time: $*"
    return 1
}
marked= seen=0
mark() { marked=$1 seen=$(wc -l <"$1"); } # FILE: from now on wait_for looks at new lines of it only
has_line() { # FILE PATTERN
    from=1
    [ "$1" != "$marked" ] || from=$((seen + 1))
    tail -n "+$from" "$1" 2>/dev/null | grep -q -e "$2"
}
anew() { # FILE: empty, before the process that writes to it: what waits for its first words must not see those of before
    : >"$1"
    [ "$1" != "$marked" ] || marked=
}
wait_for() { wait_until "$1" has_line "$2" "$3"; } # SECONDS FILE PATTERN

# A text that is to be disturbed has no end of its own, so that it cannot end before; it is ended when enough of it is there.
longer() { [ -e "$1" ] && [ "$(wc -c <"$1")" -gt "$2" ]; } # FILE BYTES
end_text() {                                               # PID FILE BYTES: of kin run, when FILE is longer than that
    wait_until 60 longer "$2" "$3"
    kill -INT "$1"
    wait "$1"
    check [ $? -eq 130 ]
}
alike() { # FILE FILE BYTES: they begin alike; at least so far, and as far as both go. Where a text was ended the last bytes are its end
    n=$(($(wc -c <"$1") - 16))
    [ $n -le $(($(wc -c <"$2") - 16)) ] || n=$(($(wc -c <"$2") - 16))
    [ $n -ge "$3" ] || { fail "less than $3 bytes" && return; }
    head -c $n "$1" >"$dir/alike1"
    head -c $n "$2" >"$dir/alike2"
    same "$dir/alike1" "$dir/alike2"
}

key() { # NAME [DIGIT]: a home with the cluster's key
    mkdir -p "$dir/$1"
    [ -f "$dir/$1/key" ] || (umask 077 && printf '%064d\n' "${2:-7}" >"$dir/$1/key")
}
join() { # NAME OPTION...
    who=$1
    key "$who"
    shift
    HOME=$dir/$who "$kin" join "127.0.0.1:$port" --name "$who" --key-file "$dir/$who/key" --listen 127.0.0.1 -t 1 "$@" \
        >>"$dir/$who.log" 2>&1 &
    pids="$pids $!"
    eval "pid_$who=$!"
}
on_head() { # COMMAND OPTION...: to the end
    what=$1
    key head
    shift
    HOME=$dir/head timeout 240 "$kin" "$what" --cluster --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" \
        --hidden -t 1 "$@" 2>>"$dir/head.log"
}
serve_with() { # N OPTION...: a server that has waited for N devices; $base, $pid_head
    n_devices=$1
    key head
    shift
    anew "$dir/serve.log"
    HOME=$dir/head "$kin" serve --cluster --devices "$n_devices" --name desk --key-file "$dir/head/key" --listen 127.0.0.1 \
        --cluster-port "$port" --hidden -t 1 --port 0 "$@" >"$dir/serve.log" 2>&1 &
    pid_head=$!
    pids="$pids $pid_head"
    wait_for 20 "$dir/serve.log" "serving on $n_devices device"
    wait_for 60 "$dir/serve.log" 'ready to answer'
    has_line "$dir/serve.log" 'serving .* at http.*, once the ring is up' || fail 'it says nothing of the ring'
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$dir/serve.log")
    wait_until 20 curl -sf -o "$dir/health" "$base/health" # the head's own layers are there, too
}
alone() { # COMMAND OPTION...: without others
    what=$1
    shift
    HOME=$dir/head "$kin" "$what" -t 1 "$@" 2>>"$dir/head.log"
}

# Plans by rule, unless a check says otherwise; and nobody measures its machine, which takes seconds.
KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PLAN=even KIN_PROFILE

# The end of the test, and its status.
tally() {
    echo "$n_checks checks, $n_failed failed"
    [ "$n_failed" -eq 0 ]
}
