#!/bin/sh
# Real clients (tests/clients) against kin serve, on one machine and on a ring of two real processes.
#
#   test_clients.sh PATH_TO_KIN
#
# Skipped if their packages are not installed (npm install --prefix tests/clients).
set -u
kin=$1
clients=$(dirname "$0")/clients
if ! command -v node >/dev/null || [ ! -d "$clients/node_modules" ]; then
    echo 'skipped: npm install --prefix tests/clients'
    exit 77
fi
dir=$(mktemp -d) || exit 1
pids=
trap 'for pid in $pids; do kill -9 "$pid" 2>/dev/null; done; rm -rf "$dir" ${port_lock:+"$port_lock"}' EXIT
trap 'exit 130' INT TERM
for name in $(env | sed -n 's/^\(KIN_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export HOME="$dir" XDG_CACHE_HOME="$dir/cache"
unset XDG_CONFIG_HOME
(umask 077 && printf '%064d\n' 7 >"$dir/key")
# The demo model with a longer context, as tool descriptions need.
LC_ALL=C sed 's/\(llama.context_length....\)\x00\x02/\1\x00\x40/' "$(dirname "$0")/../assets/demo.gguf" >"$dir/demo.gguf"
# shellcheck source=tests/ports.sh
. "$(dirname "$0")/ports.sh"
cluster_port=$port
n_failed=0

# serve NAME OPTION...: starts a server and sets $base to its address.
serve() {
    log=$dir/$1.log
    shift
    "$kin" serve "$dir/demo.gguf" --port 0 --metrics -t 1 "$@" >"$log" 2>&1 &
    server=$!
    pids="$pids $server"
    base= n=0
    while [ -z "$base" ] && [ $n -lt 2400 ] && kill -0 $server 2>/dev/null; do
        base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$log" | head -n 1)
        sleep 0.1
        n=$((n + 1))
    done
}

# ask NAME: runs all checks against the server, which must then end on SIGTERM.
ask() {
    if [ -z "$base" ]; then
        echo "FAILED: $1: no server" && cat "$log"
    elif ! node "$clients/run.mjs" "$base" >"$dir/out"; then
        echo "FAILED: $1" && grep -A 4 -e '^not ok' "$dir/out" && tail -n 1 "$dir/out"
    else
        tail -n 1 "$dir/out"
        kill "$server"
        wait "$server"
        status=$?
        [ $status -eq 0 ] && return
        echo "FAILED: $1: the server ended with $status" && tail "$log"
    fi
    n_failed=$((n_failed + 1))
}

serve alone
ask 'one machine'

KIN_PROFILE=$(dirname "$0")/machine.json
export KIN_PLAN=even KIN_PROFILE
"$kin" join "127.0.0.1:$cluster_port" --name anna --key-file "$dir/key" --listen 127.0.0.1 -t 1 >"$dir/anna.log" 2>&1 &
pids="$pids $!"
serve ring --cluster --devices 1 --name desk --key-file "$dir/key" --listen 127.0.0.1 --cluster-port "$cluster_port" --hidden
ask 'a ring of two'

[ $n_failed -eq 0 ]
