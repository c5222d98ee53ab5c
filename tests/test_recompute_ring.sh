#!/bin/sh
# Layers of which no member has pages are recomputed alone, from the logged hidden states that had been passed on to them: a device that
# kept nothing on its disk is killed. Real processes on loopback.
#
#   test_recompute_ring.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_VERBOSE=1 KIN_DRAFT=off # with drafts of the same text it would end before anything happens
"$mkmodel" --preset 25m --layers 9 --ctx 8192 --vocab 4000 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'
run() { # NAME N OPTION...: runs a text with N devices, in the background
    who=$1
    n_devices=$2
    shift 2
    key head
    anew "$dir/$who.text"
    HOME=$dir/head "$kin" run --cluster --devices "$n_devices" --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" --hidden \
        -t 1 --ctx 8192 -m "$dir/model.gguf" --seed 5 --ignore-eos --no-echo --stats --trace "$dir/$who.trace" -n 8000 -p 'A day at the sea' "$@" \
        >"$dir/$who.text" 2>"$dir/$who.log" &
    writer=$!
    pids="$pids $writer"
}
pages() { # NAME: prints the number of pages on that member's disk
    find "$dir/$1/.cache/kin/kv" -type f 2>/dev/null | wc -l
}
counts() { # NAME: checks the numbers of tokens recomputed in all layers, recomputed only in the lost layers, and loaded from disks
    n_all=$(sed -n 's/^kin: \([0-9]*\) tokens were recomputed after.*/\1/p' "$dir/$1.log")
    n_some=$(sed -n "s/^kin: \([0-9]*\) tokens were recomputed in a lost device's layers only.*/\1/p" "$dir/$1.log")
    n_loaded=$(sed -n 's/^kin: \([0-9]*\) tokens were loaded from the on-disk.*/\1/p' "$dir/$1.log")
    n_written=$(sed -n 's/^kin: \([0-9]*\) tokens generated.*/\1/p' "$dir/$1.log")
    n_prompt=$(sed -n 's/.*; prompt \([0-9]*\) tokens.*/\1/p' "$dir/$1.log")
    echo "$1: ${n_loaded:-0} tokens were taken from disks, ${n_some:-0} were computed again in the lost layers only, ${n_all:-0} in all"
    check [ "${n_some:-0}" -gt 128 ]
    check [ "${n_all:-0}" -lt 128 ]
    check [ $((${n_all:-0} + ${n_some:-0} + ${n_loaded:-0})) -le $((n_prompt + n_written)) ] # each token of the text at most once
}
goes_on() { # NAME: the text continues from where it is, like an undisturbed one
    written=$(wc -c <"$dir/$1.text")
    end_text $writer "$dir/$1.text" $((written + 400))
    alike "$dir/$1.text" "$dir/still.text" $enough
    check has_line "$dir/$1.log" 'generation continues'
    counts "$1"
}
of_size() { find "$dir/$1/.cache/kin/kv" -type f -size "$2c" 2>/dev/null | wc -l; } # NAME BYTES
has_kept() { # TEXT NAME N: of all full blocks it has the pages of N layers, and the tokens (the head) or the hidden states it passed on
    n_blocks=$((($(wc -l <"$dir/$1.trace") - 1 + 10) / 64)) # the prompt has 10 tokens
    [ "$2" = head ] && beside=352 || beside=$((64 * 512 * 4 + 64))
    [ "$(of_size "$2" $((64 * 512 + 64)))" -ge $((n_blocks * $3)) ] && [ "$(of_size "$2" $beside)" -ge $n_blocks ]
}
lose() { # NAME N PID LAYERS: kills PID of N devices when enough text is there; the others have LAYERS each
    run "$1" "$2"
    wait_until 60 longer "$dir/$1.text" $enough
    [ "$2" -eq 1 ] || wait_until 20 has_kept "$1" anna "$4"
    wait_until 20 has_kept "$1" head "$4"
    kill -9 "$3"
    goes_on "$1"
}
enough=800 # bytes, about 300 tokens: four blocks

claim='a text of an undisturbed ring'
join anna
run still 1 --no-kv-disk
end_text $writer "$dir/still.text" $((2 * enough + 400))
check [ "$(pages anna)" -eq 0 ]

claim='the only device is killed: the head computes its layers, and has pages of its own'
kill "$pid_anna"
wait "$pid_anna" 2>/dev/null
join bert --no-kv-disk
lose head_alone 1 "$pid_bert" 4
check [ "$(pages bert)" -eq 0 ]

claim='one of two is killed: the other one and the head compute its layers, each what it has of them'
rm -rf "$dir/head/.cache/kin/kv" # because it is the same text
join anna
join bert --no-kv-disk
lose one_of_two 2 "$pid_bert" 3
kill "$pid_anna"
wait "$pid_anna" 2>/dev/null

claim='two that kept nothing come back: the second one computes from what the first one would have sent to it, rounded'
export KIN_WIRE=f16 KIN_PLAN="$dir/plan.json"
echo '{"devices": [{"device": "anna", "window": 4}, {"device": "bert", "window": 4}, {"device": "head", "window": 1}]}' >"$KIN_PLAN"
rm -rf "$dir/head/.cache/kin/kv" "$dir/anna/.cache/kin/kv"
join anna --no-kv-disk
join bert --no-kv-disk
run still 2
end_text $writer "$dir/still.text" $((2 * enough + 400))
rm -rf "$dir/head/.cache/kin/kv"
run both 2
wait_until 60 longer "$dir/both.text" $enough
wait_until 20 has_kept both head 1
kill -9 "$pid_anna" "$pid_bert"
join anna
join bert
goes_on both
tally
