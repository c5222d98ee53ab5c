#!/bin/sh
# Kills a device of a ring that uses drafts while it generates, once for each golden model, and compares the text with that of one machine
# without drafts: ids and log-probabilities, to the last digit. Real processes of one thread on loopback.
#
#   bench/model_kills.sh [MODEL.gguf...]      KIN (default: build/kin), TOKENS (600), DRAFT (auto)
#
# Models: those of tests/golden, and of the folders of golden data beside the clone. Prints a line for each one.
set -u
n_tokens=${TOKENS:-600} prompt='1, 5, 9, 14, 20'
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- "$root"/tests/golden/*.gguf "$root"/../shared/golden/*.gguf "$root"/../shared/golden-families/*.gguf
models=$*
set -- "${KIN:-$PWD/build/kin}"
cd "$root/tests" || exit 1
# shellcheck disable=SC2034 # ring.sh uses it
beside=.
# shellcheck source=tests/ring.sh
. ./ring.sh
export KIN_PROFILE="$PWD/machine.json"
ask() { # BASE FILE: streams the tokens
    curl -sN -m 100 "$1/completion" -d "{\"prompt\": [$prompt], \"n_predict\": $n_tokens, \"temperature\": 0, \"ignore_eos\": true, \"n_probs\": 1, \"stream\": true}" >"$2"
}
tokens() { sed 's/{"id":/\n&/g' "$1" | sed -n 's/^{"id":\([0-9]*\),.*"logprob":\([-0-9.e]*\),"top_logprobs".*/\1 \2/p'; } # FILE
n_tokens_of() { tokens "$1" | wc -l; }                                                                                 # FILE
has_tokens() { [ -e "$1" ] && [ "$(n_tokens_of "$1")" -ge "$2" ]; }                                                    # FILE N
end() {                                                                                                              # PID...
    kill "$@" 2>/dev/null
    wait "$@" 2>/dev/null
}
one_machine() { # MODEL FILE
    anew "$dir/one.log"
    HOME=$dir/head "$kin" serve -m "$1" --ctx 1024 -t 1 --port 0 --no-webui --draft off >"$dir/one.log" 2>&1 &
    pid_one=$!
    pids="$pids $pid_one"
    wait_for 20 "$dir/one.log" 'serving .* at http'
    one=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$dir/one.log")
    wait_until 20 curl -sf -o "$dir/health" "$one/health"
    ask "$one" "$2"
    end $pid_one
}
mkdir -p "$dir/head"
for model in $models; do
    claim=${model##*/}
    rm -f "$dir"/*.text
    one_machine "$model" "$dir/one.text"
    join anna
    join bert
    serve_with 2 -m "$model" --ctx 1024 --no-webui --draft "${DRAFT:-auto}" --metrics
    ask "$base" "$dir/ring.text" &
    text=$!
    wait_until 60 has_tokens "$dir/ring.text" $((n_tokens / 3))
    first=$(sed -n "s/.*device '\(.*\)' (stage 1 of.*/\1/p" "$dir/serve.log" | head -n 1)
    killed=$(n_tokens_of "$dir/ring.text")
    eval "kill -9 \$pid_${first:-anna}"
    wait $text
    drafted=$(curl -s -m 10 "$base/metrics" | sed -n 's/^llamacpp:spec_decode_num_accepted_tokens_total //p')
    tokens "$dir/one.text" >"$dir/one"
    tokens "$dir/ring.text" >"$dir/ring"
    echo "$claim: ${first:-anna} killed after $killed tokens, ${drafted:-no} drafted right, $(wc -l <"$dir/ring") of $n_tokens, $(cmp -s "$dir/one" "$dir/ring" && echo the same || echo OTHERS)"
    check [ "$(wc -l <"$dir/one")" -eq "$n_tokens" ]
    same "$dir/one" "$dir/ring"
    end "$pid_head" "$pid_anna" "$pid_bert"
done
tally
