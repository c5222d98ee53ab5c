#!/bin/sh
# A model whose layers have states and no pages, in a ring of three: a device is killed, the states of its layers come from another member's
# copies, and the text goes on at the last checkpoint. Then the head is started again. Real processes on loopback.
#
#   test_checkpoint_ring.sh PATH_TO_KIN
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_VERBOSE=1 KIN_DRAFT=off # with drafts of the same text it would end before anything happens
model=$(dirname "$0")/golden/lfm2.q8_0.gguf
gap=512 # tokens from one checkpoint to the next
serve() { serve_with 2 --metrics --ctx 16384 -m "$model" "$@"; } # OPTION...
counter() { # NAME: prints a metric
    curl -s -m 10 "$base/metrics" | sed -n "s/^kin:$1 //p"
}
text() { # NAME N: requests N tokens, in the background
    curl -sN -m 400 -d "{\"prompt\": \"$prompt\", \"n_predict\": $2, \"ignore_eos\": true, \"seed\": 5, \"stream\": true}" \
        "$base/completion" >"$dir/$1.stream" &
    writer=$!
}
events() { grep -c '^data' "$dir/$1.stream"; }                           # NAME: prints the number of its tokens
has_events() { [ -e "$dir/$1.stream" ] && [ "$(events "$1")" -ge "$2" ]; } # NAME N
said() { sed -n 's/^data: .*"content":"\(.*\)","tokens".*/\1/p' "$dir/$1.stream" | tr -d '\n'; } # NAME: prints the text
begins_alike() { # NAME BYTES: begins like the text of an undisturbed ring, with at least that many
    said "$1" | head -c "$(wc -c <"$dir/expected")" >"$dir/begin"
    head -c "$(wc -c <"$dir/begin")" "$dir/expected" >"$dir/want"
    [ "$(wc -c <"$dir/begin")" -gt "$2" ] && cmp -s "$dir/begin" "$dir/want"
}
files() { find "$dir/$1/.cache/kin/kv" -type f 2>/dev/null | wc -l; } # NAME: prints the number of files on that device's disk
has_files() { [ "$(files "$1")" -ge "$2" ]; }                        # NAME N
prompt='Once upon a time there was a little girl who lived in a house by the sea with her mother and a dog'

claim='a text of an undisturbed ring'
join anna
join bert
serve --no-kv-disk
text alone 6000
wait $writer
check has_events alone 6000
said alone >"$dir/expected"
kill "$pid_head" "$pid_anna" "$pid_bert"
wait "$pid_head" "$pid_anna" "$pid_bert" 2>/dev/null
check [ "$(files anna)" -eq 0 ]

claim='a device is killed: its states come from the other one, and what follows the last checkpoint is computed again'
join anna
join bert
serve
first=$(sed -n "s/.*device '\(.*\)' (stage 1 of 2.*/\1/p" "$dir/serve.log" | head -n 1)
case ${first:-anna} in anna) second=bert ;; *) second=anna ;; esac
text killed 6000
wait_until 60 has_events killed 2500
wait_until 20 has_files $second $((4 * 4)) # of four checkpoints: the parts of its two layers, and copies of as many
n_written=$(events killed)
eval "kill -9 \$pid_$first"
wait $writer
check begins_alike killed 5000
check has_line "$dir/serve.log" 'generation continues'
n_lost=$(counter replayed_tokens_total)
echo "after the loss of $first at $n_written tokens: ${n_lost:-no} tokens were computed again"
check [ "${n_lost:-9999}" -lt $((n_written - 3 * gap)) ]
check [ "${n_lost:-9999}" -gt 0 ]
kill "$pid_head"
wait "$pid_head" 2>/dev/null

claim='another head finds the text up to the last checkpoint'
join "$first"
serve
prompt="$prompt, $prompt, $prompt, $prompt"
text first 100
wait $writer
kill "$pid_head"
wait "$pid_head" 2>/dev/null
serve
text second 100
wait $writer
said first >"$dir/expected"
check begins_alike second 50
n_prompt=$(sed -n 's/.*"prompt_n":\([0-9]*\).*/\1/p' "$dir/second.stream" | tail -n 1)
n_found=$(sed -n 's/.*"cache_n":\([0-9]*\).*/\1/p' "$dir/second.stream" | tail -n 1)
echo "the second head found ${n_found:-none} tokens, and computed ${n_prompt:-none}"
check [ "${n_found:-0}" -ge 192 ]
check [ "${n_prompt:-9999}" -lt $((64 + 8)) ]

tally
