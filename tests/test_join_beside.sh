#!/bin/sh
# A device joins while texts are generated: its weights are fetched in the background, and the switch comes after that. Then a device is
# lost: the weights that the others need were fetched before. Real processes on loopback.
#
#   test_join_beside.sh PATH_TO_KIN
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_VERBOSE=1
# Checks that a file has lines in this order, possibly with others between them.
in_order() { # FILE PATTERN...
    n_checks=$((n_checks + 1))
    of=$1 at=0
    shift
    for pattern; do
        found=$(awk -v from="$at" -v pattern="$pattern" 'NR > from && $0 ~ pattern { print NR; exit }' "$of")
        [ -n "$found" ] || { fail "no '$pattern' after line $at of $(basename "$of")" && return; }
        at=$found
    done
}

join anna
serve_with 1 --ctx 8192 --plan even
texts() { # NAME: requests texts one after the other until the file NAME.enough exists
    i=0
    while [ ! -e "$dir/$1.enough" ] && [ $i -lt 500 ]; do
        curl -s -m 240 -d '{"prompt": "Once upon a time", "n_predict": 200, "ignore_eos": true, "seed": 5}' "$base/completion" |
            sed -n 's/.*"content":"\(.*\)","tokens".*/\1/p' >>"$dir/$1.texts"
        echo >>"$dir/$1.texts"
        i=$((i + 1))
    done
}
are_the_same() { # NAME
    check [ "$(wc -l <"$dir/$1.texts")" -ge 2 ]
    check [ "$(sort -u "$dir/$1.texts" | wc -l)" -eq 1 ]
    check [ "$(head -n 1 "$dir/$1.texts" | wc -c)" -gt 300 ]
}

claim='a device joins while texts are written: it fetches beside them, then all switch, and every text is the same'
texts joining &
writer=$!
n=0
while [ ! -s "$dir/joining.texts" ] && [ $n -lt 1200 ]; do
    sleep 0.05
    n=$((n + 1))
done
join cleo
wait_for 20 "$dir/serve.log" 'serving on 2 devices'
: >"$dir/joining.enough"
wait $writer
are_the_same joining
in_order "$dir/serve.log" "device 'anna' .stage 1 of 1. is ready" "device 'cleo' has joined" \
    'preparing a better plan with 2 devices' 'plan [0-9]* ended: a better plan is ready' \
    'plan [0-9]*: 2 devices' 'serving on 2 devices'
in_order "$dir/cleo.log" 'waiting for work' 'fetched ahead' 'getting ready for the head' 'working for the head'
check [ "$(sed -n '/is over: all is here/,/serving on 2 devices/p' "$dir/serve.log" | grep -c 'fetching')" -eq 0 ]
claim='nothing was lost for it'
check [ "$(grep -c 'generation continues' "$dir/serve.log")" -eq 0 ]

claim='when a device is lost, the others have what the plan without it needs: it was fetched beforehand'
wait_for 20 "$dir/cleo.log" 'fetched ahead: [0-9]* layers for the loss of another device'
texts losing &
writer=$!
# This text is being generated when the device is lost; the others may just be between two texts. It has no end of its own.
curl -sN -m 240 -d '{"prompt": "One day", "n_predict": 8000, "ignore_eos": true, "seed": 5, "stream": true}' "$base/completion" >"$dir/stream" &
streaming=$!
n=0
while [ "$(grep -c '^data' "$dir/stream")" -lt 3 ] && [ $n -lt 3000 ]; do
    sleep 0.02
    n=$((n + 1))
done
before=$(wc -l <"$dir/cleo.log")
kill -9 "$pid_anna"
wait_for 20 "$dir/serve.log" "device 'anna'.*; generation continues"
n=0
until [ "$(grep -c 'serving on 1 device' "$dir/serve.log")" -ge 2 ] || [ $n -ge 1600 ]; do
    sleep 0.05
    n=$((n + 1))
done
check [ $n -lt 1600 ]
while [ "$(wc -l <"$dir/losing.texts")" -lt 2 ] && [ $n -lt 2400 ]; do
    sleep 0.05
    n=$((n + 1))
done
: >"$dir/losing.enough"
wait $writer
are_the_same losing
n_events=$(grep -c '^data' "$dir/stream")
goes_on() { [ "$(grep -c '^data' "$dir/stream")" -ge $((n_events + 20)) ]; } # it continues on the new ring
wait_until 20 goes_on
kill $streaming
wait $streaming 2>/dev/null
tail -n +$((before + 1)) "$dir/cleo.log" >"$dir/after.log"
in_order "$dir/after.log" 'getting ready for the head' 'all layers of the plan are available' 'working for the head'
check [ "$(sort -u "$dir/joining.texts" "$dir/losing.texts" | wc -l)" -eq 1 ]

claim='kin status says what is prepared: nothing any more'
HOME=$dir/head "$kin" status "127.0.0.1:$port" --key-file "$dir/head/key" >"$dir/status.log" 2>&1
check grep -q "^head 'desk': serving on 1 device$" "$dir/status.log"

kill "$pid_head"
wait "$pid_head"
tally
