#!/bin/sh
# A head that is killed in the middle of a text and started again. A client that repeats its request gets the same text; of the prompt only
# the part after its last full page is computed, and generated tokens in full pages are known and only verified. On one machine and in a
# ring. Real processes on loopback.
#
#   test_head_restart.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
"$mkmodel" --preset 25m --layers 9 --ctx 2048 --vocab 4000 --type q8_0 --seed 3 -o "$dir/model.gguf" >/dev/null || fail 'no model'
story='Once upon a time there was a little girl who lived in a house by the sea with her mother and a dog, and every morning she'
prompt="$story $story $story $story $story $story"
options="--ctx 2048 --no-webui --draft-min 8 -m $dir/model.gguf"
alone() { # one machine
    key head
    anew "$dir/serve.log"
    # shellcheck disable=SC2086 # several words
    HOME=$dir/head "$kin" serve -t 1 --port 0 $options >"$dir/serve.log" 2>&1 &
    pid_head=$!
    pids="$pids $pid_head"
    wait_for 20 "$dir/serve.log" 'serving .* at http'
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$dir/serve.log")
}
# shellcheck disable=SC2086 # several words
ring() { serve_with 2 $options; }
ask() { # NAME: requests a text, in the background
    curl -sN -m 240 -d "{\"prompt\": \"$prompt\", \"n_predict\": 120, \"ignore_eos\": true, \"seed\": 5, \"stream\": true}" \
        "$base/completion" >"$dir/$1.stream" 2>/dev/null &
    writer=$!
}
n_events() { grep -c '^data' "$dir/$1.stream"; }
has_events() { [ -e "$dir/$1.stream" ] && [ "$(n_events "$1")" -ge "$2" ]; } # NAME N
said() { sed -n 's/^data: .*"content":"\(.*\)","tokens".*/\1/p' "$dir/$1.stream" | tr -d '\n'; } # NAME
number() { sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$dir/$1.stream" | tail -n 1; } # NAME KEY
goes_on_from() { # NAME: what was written before the head died is the beginning of the new text
    case $(said again) in "$(said "$1")"*) [ "$(said "$1" | wc -c)" -gt 100 ] ;; *) false ;; esac
}
lacks_only_a_page() { # at most 64 tokens of the prompt are computed, its last one among them
    [ "$(number again prompt_n)" -le 64 ] && [ "$(number again cache_n)" -ge 256 ]
}
knows_what_it_wrote() { # tokens of the block that was full are drafted
    accepted=$(sed -n 's/.*"earlier":{"draft_n":[0-9]*,"draft_n_accepted":\([0-9]*\).*/\1/p' "$dir/again.stream" | tail -n 1)
    echo "${accepted:-0} tokens were known, $(number again pass_n) passes"
    [ "${accepted:-0}" -ge 20 ]
}
n_tokens() { # prints the number of tokens of the prompt
    curl -s -m 10 -d "{\"content\": \"$prompt\", \"add_special\": true}" "$base/tokenize" | grep -o '[0-9]*' | wc -l
}
n_files() { find "$dir/head/.cache/kin/kv" -type f 2>/dev/null | wc -l; }
has_pages() { # NAME LAYERS: the head has stored all blocks that are full so far: a page for each of its layers, and the tokens
    n_blocks=$(((n_prompt + $(n_events "$1")) / 64)) n_stored=$(n_files)
    [ "$n_stored" -ge $((n_blocks * ($2 + 1))) ] || return 1
    sleep 0.5 # in a ring copies of other devices' pages are among them, so it must not be storing any more
    [ "$(n_files)" -eq "$n_stored" ]
}
dies_and_is_asked_again() { # COMMAND LAYERS: the command that starts the head, and the head's number of layers
    n_prompt=$(n_tokens)
    ask first
    wait_until 30 has_events first 100
    wait_until 30 has_pages first "$2"
    echo "$(n_events first) of 120 tokens were written when it was killed, behind $n_prompt of the prompt"
    kill -9 "$pid_head"
    wait "$writer" "$pid_head" 2>/dev/null
    "$1"
    ask again
    wait "$writer"
    echo "$1: $(number again cache_n) tokens of the prompt from pages, $(number again prompt_n) computed"
    check goes_on_from first
    check lacks_only_a_page
    check [ "$(number again predicted_n)" -eq 120 ]
    check knows_what_it_wrote
}

claim='one machine'
alone
dies_and_is_asked_again alone 9
kill "$pid_head"
wait "$pid_head" 2>/dev/null
rm -rf "$dir/head/.cache" "$dir"/*.stream

claim='a ring: devices find the new head'
join anna
join bert
ring
dies_and_is_asked_again ring 3
tally
