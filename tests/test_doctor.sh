#!/bin/sh
# kin doctor: its lines, JSON and status; with a running head; on a machine without a network.
#
#   test_doctor.sh PATH_TO_KIN
set -u
# shellcheck source=tests/checks.sh
. "$(dirname "$0")/checks.sh"
# shellcheck source=tests/ports.sh
. "$(dirname "$0")/ports.sh"
head=
trap '[ -z "$head" ] || kill -9 $head 2>/dev/null; rm -rf "$dir" "$port_lock"' EXIT
export XDG_CONFIG_HOME="$dir/config"

claim='a line for each part, a command where one mends it, and status 0 without a problem'
status 0 "$kin" doctor --port $port
for about in processor memory gpu disk files network search firewall cluster; do says "$out" "^\(ok\|note\)  *$about "; done
says "$out" '^note .*in no cluster yet'
says "$out" '^ *-> .*kin join$'
says_not "$out" 'problem'
silent "$err"

claim='JSON has the same, and a problem is status 1'
: >"$dir/file"
status 1 "$kin" doctor --json --port $port --cache "$dir/file/x"
says "$out" '"problems": 1'
says "$out" '"level": "problem"'
says "$out" '"command": "kin run --cache DIR ..."'
says "$out" '"command": null'
status 2 "$kin" doctor --nope

claim='a head that runs is found'
KIN_PROFILE=$(dirname "$0")/machine.json "$kin" serve --cluster --hidden --listen 127.0.0.1 --cluster-port $port --port 0 -t 1 --plan even 2>"$dir/log" >/dev/null </dev/null &
head=$!
n=0
while [ $n -lt 1200 ] && ! grep -q 'listens on port' "$dir/log"; do
    sleep 0.05
    n=$((n + 1))
done
n=0
until status 0 "$kin" doctor --port $port && grep -q "^ok  *cluster  *the head '" "$out" || [ $n -ge 10 ]; do n=$((n + 1)); done # a search takes 2.5 s
says "$out" "^ok  *cluster  *the head '"
says "$out" "^note  *ports  *TCP port $port of the head: "
kill $head
wait $head
head=

claim='a machine without a network runs alone'
if unshare -rn true 2>/dev/null; then
    status 0 unshare -rn "$kin" doctor --port $port
    says "$out" '^note  *network  *no network is up'
    says "$out" '^note  *search '
    says "$out" '-> kin join HEAD'
fi

tally
