# shellcheck shell=sh disable=SC2034,SC2154
# Rings of real processes on loopback, for the test that sources this: a temporary folder, homes with one key, joining devices, a head that
# runs to its end, and waiting for log lines. No settings from this machine; all processes end with the test.
#
# Expects the path of the program in $1; mkmodel is in the same folder. A test sets `claim` before its checks and ends with `tally`.
# KEEP=FOLDER keeps the logs.
command -v curl >/dev/null || { echo 'skipped: no curl' && exit 77; } # without it serve_with would wait until the test times out
kin=$1
mkmodel=$(dirname "$kin")/mkmodel
folder=${TMPDIR:-/tmp}
[ "${in_memory:-no}" = no ] || [ ! -w /dev/shm ] || folder=/dev/shm # for tests with thousands of small files (tests/memory_dir.h)
dir=$(TMPDIR=$folder mktemp -d) || exit 1
# shellcheck source=tests/ports.sh
. "${beside:-$(dirname "$0")}/ports.sh" # a script in another folder sets $beside
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
n_checks=0 n_failed=0 claim=

fail() {
    echo "FAILED: $claim: $*"
    for log in "$dir/head.log" "$dir/serve.log"; do # first, for readers who see only the beginning
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

# Repeats the command until it succeeds, for SECONDS; four times as long on systems slowed by sanitizers or other tests.
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
mark() { marked=$1 seen=$(wc -l <"$1"); } # FILE: from now on, wait_for looks only at new lines of it
has_line() { # FILE PATTERN
    if [ "$1" = "$marked" ]; then
        tail -n "+$((seen + 1))" "$1" 2>/dev/null | grep -q -e "$2"
    else
        grep -q -e "$2" "$1" 2>/dev/null
    fi
}
anew() { # FILE: empties it before a process starts to write, so that wait_for does not find lines of an earlier process
    : >"$1"
    [ "$1" != "$marked" ] || marked=
}
wait_for() { wait_until "$1" has_line "$2" "$3"; } # SECONDS FILE PATTERN

# A generation that is to be disturbed has no end of its own, so it cannot end too early. It is stopped when enough text is there.
longer() { [ -e "$1" ] && [ "$(wc -c <"$1")" -gt "$2" ]; } # FILE BYTES
end_text() {                                               # PID FILE BYTES: stops `kin run` when FILE is longer than BYTES
    wait_until 60 longer "$2" "$3"
    kill -INT "$1"
    wait "$1"
    check [ $? -eq 130 ]
}
alike() { # FILE FILE BYTES: both begin with the same text, of at least BYTES. The last 16 bytes are ignored: a stopped text may end in them
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
on_head() { # COMMAND OPTION...: runs it on the head to its end
    what=$1
    key head
    shift
    HOME=$dir/head timeout 240 "$kin" "$what" --cluster --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" \
        --hidden -t 1 "$@" 2>>"$dir/head.log"
}
serve_with() { # N OPTION...: starts a server, waits for N devices, sets $base and $pid_head
    n_devices=$1
    key head
    shift
    anew "$dir/serve.log"
    HOME=$dir/head "$kin" serve --cluster --devices "$n_devices" --name desk --key-file "$dir/head/key" --listen 127.0.0.1 \
        --cluster-port "$port" --hidden -t 1 --port 0 "$@" >"$dir/serve.log" 2>&1 &
    pid_head=$!
    pids="$pids $pid_head"
    wait_for 20 "$dir/serve.log" "serving on $n_devices device"
    wait_for 60 "$dir/serve.log" ': ready$'
    has_line "$dir/serve.log" 'serving .* at http.*, once the ring is up' || fail 'it says nothing of the ring'
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$dir/serve.log")
    wait_until 20 curl -sf -o "$dir/health" "$base/health" # the head's own layers are loaded too
}
alone() { # COMMAND OPTION...: runs it on one machine
    what=$1
    shift
    HOME=$dir/head "$kin" "$what" -t 1 "$@" 2>>"$dir/head.log"
}

# Plans are made by rule unless a check says otherwise, and no process measures its machine, which would take seconds.
KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PLAN=even KIN_PROFILE

# Prints the counters and returns the test's status.
tally() {
    echo "$n_checks checks, $n_failed failed"
    [ "$n_failed" -eq 0 ]
}
