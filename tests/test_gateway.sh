#!/bin/sh
# Devices that reach only other devices, as real processes on loopback: cleo knows bert, bert knows anna, and anna the head. The text is
# that of one machine. When anna is killed it continues; when anna or the head is back, so are all others, without the wait that follows a
# refusal.
#
#   test_gateway.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
"$mkmodel" --preset 25m --layers 8 --ctx 8192 --vocab 4000 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'
options="-m $dir/model.gguf --ctx 8192 --temp 0 --ignore-eos --draft off -p once"
port_head=$port port_anna=$((port + 1)) port_bert=$((port + 2))
join_by() { # PORT NAME OPTION...
    port=$1
    shift
    join "$@"
    port=$port_head
}
n_lines() { grep -c -e "$2" "$1"; } # FILE PATTERN
all_work() {                        # N: each was given at least N plans
    [ "$(n_lines "$dir/anna.log" 'working for')" -ge "$1" ] && [ "$(n_lines "$dir/cleo.log" 'working for')" -ge "$1" ]
}

claim='who joins a device that has no head yet hears so, and joins when it has'
# shellcheck disable=SC2086 # several words
alone run $options -n 200 >"$dir/want"
join_by "$port_bert" cleo
join_by "$port_anna" bert --port "$port_bert"
join anna --port "$port_anna"
wait_for 20 "$dir/cleo.log" 'without a head at present'

claim='two gateways in a row: the text of one machine'
# shellcheck disable=SC2086
on_head run --devices 3 $options -n 200 >"$dir/got"
same "$dir/want" "$dir/got"
check all_work 1

claim='the head goes and comes back'
before=$(date +%s)
# shellcheck disable=SC2086
on_head run --devices 3 $options -n 200 >"$dir/got"
took=$(($(date +%s) - before))
echo "all were back, and the text was written, after $took s"
same "$dir/want" "$dir/got"
check all_work 2
check [ "$(n_lines "$dir/cleo.log" 'refuses this device')" -eq 0 ]
check [ "$(n_lines "$dir/bert.log" 'refuses this device')" -eq 0 ]

claim='the first of them is killed in the middle of a text'
mark "$dir/head.log"
anew "$dir/got"
# shellcheck disable=SC2086
HOME=$dir/head "$kin" run --cluster --devices 3 --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" --hidden -t 1 \
    $options -n 8000 >"$dir/got" 2>>"$dir/head.log" &
writer=$!
pids="$pids $writer"
size=$(wc -c <"$dir/want")
wait_until 60 longer "$dir/got" $((size / 5))
kill -9 "$pid_anna"
wait_for 10 "$dir/head.log" "device 'anna'.* is gone"
end_text $writer "$dir/got" $((size + 16))
alike "$dir/want" "$dir/got" $((size - 16))

claim='and started again'
join anna --port "$port_anna"
# shellcheck disable=SC2086
on_head run --devices 3 $options -n 200 >"$dir/got"
same "$dir/want" "$dir/got"
check [ "$(n_lines "$dir/cleo.log" 'refuses this device')" -eq 0 ]
tally
