#!/bin/sh
# A text continues with the keys and values that exist: in a ring of three a device is killed, and the pages of its layers come from another
# member's copies; a device joins and fetches the pages of its layers. Real processes on loopback.
#
#   test_keep.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_VERBOSE=1 KIN_DRAFT=off # with drafts of the same text it would end before anything happens
serve() { serve_with 2 --metrics --ctx 16384 -m "$dir/model.gguf" "$@"; } # OPTION...
counter() { # NAME: prints a metric
    curl -s -m 10 "$base/metrics" | sed -n "s/^kin:$1 //p"
}
text() { # NAME N: requests N tokens, in the background
    curl -sN -m 400 -d "{\"prompt\": \"$prompt\", \"n_predict\": $2, \"ignore_eos\": true, \"seed\": 5, \"stream\": true}" \
        "$base/completion" >"$dir/$1.stream" &
    writer=$!
}
has_events() { # NAME N
    [ -e "$dir/$1.stream" ] && [ "$(grep -c '^data' "$dir/$1.stream")" -ge "$2" ]
}
endless=15000 # tokens; the test stops such a text, so it cannot end too early
goes_on() {   # NAME N: waits for N more tokens, then stops the text
    n_more=$(($(grep -c '^data' "$dir/$1.stream") + $2))
    wait_until 60 has_events "$1" $n_more
    kill $writer
    wait $writer 2>/dev/null
}
said() { # NAME: prints the text
    sed -n 's/^data: .*"content":"\(.*\)","tokens".*/\1/p' "$dir/$1.stream" | tr -d '\n'
}
copied_as_the_formula_says() { # NAME N: the text has N generated tokens
    n_tokens=$(prompt_of "$1")
    n_tokens=$((${n_tokens:-0} + $2 - 1)) # the last one is not computed
    page=$((2 * 128 * 2 * 64 + 64))       # 2 (K and V) * width * 2 bytes (F16) * 64 tokens + the encryption's overhead
    n_copied=$(counter page_copies_bytes_total)
    n_blocks=$((n_tokens / 64))
    [ "${n_copied:-0}" -eq $((n_blocks * 6 * page)) ] # 6 layers on devices; the head's layers are not copied
}
begins_alike() { # NAME: begins like the text of an undisturbed ring
    said "$1" | head -c ${#expected} >"$dir/begin"
    [ "$(wc -c <"$dir/begin")" -gt 1000 ] && case $expected in "$(cat "$dir/begin")"*) ;; *) false ;; esac
}
copies() { # NAME: prints the number of pages on that device's disk
    find "$dir/$1/.cache/kin/kv" -type f 2>/dev/null | wc -l
}
prompt_of() { # NAME: prints the number of tokens of its prompt
    sed -n 's/.*"prompt_n":\([0-9]*\).*/\1/p' "$dir/$1.stream" | tail -n 1
}
has_short() { [ "$(copies "$1")" -ge 18 ]; } # DEVICE: its own pages of three blocks, and copies of as many
has_copies() { # NAME DEVICE: for the text so far it has its own pages and copies, of three layers each
    n_blocks=$((($(prompt_of alone) + $(grep -c '^data' "$dir/$1.stream") - 2) / 64))
    [ $(($(copies "$2") - n_before)) -ge $((6 * n_blocks)) ]
}
story='Once upon a time there was a little girl who lived in a house by the sea with her mother and a dog, and every morning she'
"$mkmodel" --preset 25m --layers 9 --ctx 16384 --vocab 4000 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'

claim='a text of an undisturbed ring'
join anna
join bert
serve --no-kv-disk
prompt=$story
text alone 900
wait $writer
check has_events alone 800
expected=$(said alone)
kill "$pid_head" "$pid_anna" "$pid_bert"
wait "$pid_head" "$pid_anna" "$pid_bert" 2>/dev/null
check [ "$(copies anna)" -eq 0 ]

claim='a device is killed: its pages come from the other one, and hardly a token is computed again'
join anna
join bert
serve
prompt='Another day'
text short 200
wait $writer
wait_until 10 copied_as_the_formula_says short 200
prompt=$story
first=$(sed -n "s/.*device '\(.*\)' (stage 1 of 2.*/\1/p" "$dir/serve.log" | head -n 1)
[ -n "$first" ] || first=anna
case $first in anna) second=bert ;; *) second=anna ;; esac
wait_until 20 has_short $second
n_before=$(copies $second)
text killed $endless
wait_until 60 has_events killed 330
wait_until 60 has_copies killed $second
echo "$(grep -c '^data' "$dir/killed.stream") tokens were written when $first was killed"
eval "kill -9 \$pid_$first"
goes_on killed 150
check begins_alike killed
check has_line "$dir/serve.log" 'generation continues'
n_lost=$(counter replayed_tokens_total)
echo "after the loss of $first: $n_lost tokens were computed again"
check [ "${n_lost:-9999}" -lt 128 ]

claim='a device joins: it fetches the pages of its layers'
text joined $endless
wait_until 60 has_events joined 100
mark "$dir/serve.log"
join cleo
wait_until 40 has_line "$dir/serve.log" 'a better plan is ready'
wait_until 40 has_line "$dir/serve.log" 'serving on 2 devices'
goes_on joined 50 # still in the middle of the text
check begins_alike joined
check has_line "$dir/cleo.log" 'fetched [1-9][0-9]* of'
n_joined=$(($(counter replayed_tokens_total) - n_lost))
echo "after cleo has joined: $n_joined tokens were computed again"
check [ "$n_joined" -lt 128 ]

kill "$pid_head"
wait "$pid_head" 2>/dev/null

claim='kin run goes on with them, too'
run() { # NAME OPTION...: runs it in the background
    who=$1
    shift
    HOME=$dir/head "$kin" run --cluster --devices 2 --name desk --key-file "$dir/head/key" --listen 127.0.0.1 --port "$port" --hidden \
        -t 1 --ctx 16384 -m "$dir/model.gguf" --seed 5 --ignore-eos --no-echo --stats "$@" >"$dir/$who.text" 2>"$dir/$who.log" &
    writer=$!
    pids="$pids $writer"
}
run still -p 'A day at the sea' --no-kv-disk -n 500
wait $writer
size=$(wc -c <"$dir/still.text")
all_copies() { echo $(($(copies head) + $(copies bert) + $(copies anna) + $(copies cleo))); }
has_blocks() { [ $(($(all_copies) - n_before)) -ge $(($1 * 15)) ]; } # N: 9 pages per block, and copies of the devices' 6
n_before=$(all_copies)
run lost -p 'A day at the sea' -n $endless
wait_until 40 longer "$dir/lost.text" $((size / 2))
wait_until 40 has_blocks 4
kill -9 "$pid_cleo"
written=$(wc -c <"$dir/lost.text")
end_text $writer "$dir/lost.text" $((written + size / 3))
alike "$dir/still.text" "$dir/lost.text" $((size / 2))
check has_line "$dir/lost.log" 'generation continues'
n_again=$(sed -n 's/^kin: \([0-9]*\) tokens were recomputed after.*/\1/p' "$dir/lost.log")
echo "kin run, after the loss of cleo: ${n_again:-0} tokens were computed again"
check [ "${n_again:-0}" -lt 128 ]

claim='a device comes back and keeps no pages any more: the head has the copies'
join "$first"
serve
order=$(sed -n "s/.*device '\(.*\)' (stage 1 of 2.*/\1/p" "$dir/serve.log" | tail -n 1)
case ${order:-anna} in anna) other=bert ;; *) other=anna ;; esac
prompt='At first'
text before 200
wait $writer
mark "$dir/serve.log"
eval "kill -9 \$pid_$other"
join $other --no-kv-disk
wait_for 30 "$dir/serve.log" 'serving on 2 devices'
wait_for 30 "$dir/serve.log" "'$other' (stage . of 2.*is ready"
n_before=$(copies head)
prompt='And then'
text after 200
wait $writer
has_both() { [ $(($(copies head) - n_before)) -ge 18 ]; } # three blocks: its own pages of three layers, and copies of as many
wait_until 10 has_both

tally
