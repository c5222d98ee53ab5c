#!/bin/sh
# Models of which more crosses the borders of a ring than the hidden state: keys and values that later layers read, inputs of the
# layers, embeddings of the last tokens; one of them chooses the blocks of tokens that it sees. Rings of three with one round and two write the text of one machine, and go on with it when a
# device is killed. Real processes on loopback.
#
#   test_side_rows_ring.sh PATH_TO_KIN
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
export KIN_DRAFT=off KIN_CTX=1024
prompt='Once upon a time there was a little girl who lived in a house by the sea'
write() { # WHERE OPTION...: writes a text of 200 tokens
    where=$1
    shift
    "$where" run -m "$model" --temp 0 --ignore-eos --no-echo -n 200 -p "$prompt" "$@"
}
text() { # NAME N: requests N tokens, in the background
    curl -sN -m 400 -d "{\"prompt\": \"$prompt\", \"n_predict\": $2, \"ignore_eos\": true, \"temperature\": 0, \"stream\": true}" \
        "$base/completion" >"$dir/$1.stream" &
    writer=$!
}
has_events() { [ -e "$dir/$1.stream" ] && [ "$(grep -c '^data' "$dir/$1.stream")" -ge "$2" ]; } # NAME N
said() { sed -n 's/^data: .*"content":"\(.*\)","tokens".*/\1/p' "$dir/$1.stream" | tr -d '\n'; } # NAME: prints the text
end() { # PID...: ends these processes
    kill "$@" 2>/dev/null
    wait "$@" 2>/dev/null
}

check_model() { # NAME
    claim="$1: a ring writes the text of one machine, in one round and in two"
    write alone --no-kv-disk >"$dir/alone"
    check [ "$(wc -c <"$dir/alone")" -gt 100 ]
    join anna
    join bert
    for rounds in 1 2; do
        write on_head --devices 2 --rounds $rounds --no-kv-disk >"$dir/rounds"
        same "$dir/alone" "$dir/rounds"
    done

    claim="$1: a device is killed, and the text goes on as if nothing had happened"
    serve_with 2 -m "$model" --no-kv-disk
    text undisturbed 600
    wait $writer
    end "$pid_head"
    serve_with 2 -m "$model"
    text killed 600
    wait_until 60 has_events killed 250
    first=$(sed -n "s/.*device '\(.*\)' (stage 1 of 2.*/\1/p" "$dir/serve.log" | head -n 1)
    eval "kill -9 \$pid_${first:-anna}"
    wait $writer
    said undisturbed >"$dir/want"
    said killed >"$dir/got"
    check [ "$(wc -c <"$dir/want")" -gt 300 ]
    same "$dir/want" "$dir/got"
    check has_line "$dir/serve.log" 'generation continues'
    end "$pid_head" "$pid_anna" "$pid_bert"
    rm -rf "$dir/anna" "$dir/bert" "$dir/head/.cache"
}

model=$(dirname "$0")/golden/qwen4exp.q8_0.gguf
check_model qwen4exp
model=$(dirname "$0")/golden/qwen4exp-sparse.f16.gguf
check_model qwen4exp-sparse
model=$(dirname "$0")/../../shared/golden-families/gemma4-e2b.q8_0.gguf
if [ -e "$model" ]; then check_model gemma4; fi

tally
