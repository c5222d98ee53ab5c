#!/bin/sh
# Measures what writing pages of the KV cache to disk, and copying them, costs a ring while it generates. A ring of three processes of
# one thread on loopback alternates between requests whose pages are kept and requests whose pages are not.
#
#   bench/keeping.sh [PAIRS] [MODEL.gguf]      KIN (default: build/kin), TOKENS (96)
#
# Prints per request: kept (true or false), ms per token, ms of processor time of all three processes. Then prints the medians.
set -u
n_pairs=${1:-13}
kin=${KIN:-$PWD/build/kin}
model=${2:-$(dirname "$kin")/bench/1b.gguf}
mkdir -p "$(dirname "$model")"
[ -f "$model" ] || "$(dirname "$kin")/mkmodel" --preset 1b -o "$model" >&2 || exit 1
set -- "$kin"
cd "$(dirname "$0")/../tests" || exit 1
# shellcheck disable=SC2034 # ring.sh uses it
beside=.
# shellcheck source=tests/ring.sh
. ./ring.sh
export KIN_DRAFT=off KIN_PROFILE="$PWD/machine.json"
claim='a ring of three'
join anna
join bert
serve_with 2 --plan even --ctx 2048 --no-webui -m "$model"
processor_ms() {
    for pid in $pid_head $pid_anna $pid_bert; do sed 's/.*) //' "/proc/$pid/stat"; done | awk -v hz="$(getconf CLK_TCK)" '{ s += $12 + $13 } END { print s * 1000 / hz }'
}
ask() { # KEPT PROMPT
    curl -s -m 100 -d "{\"prompt\": \"$2\", \"n_predict\": ${TOKENS:-96}, \"temperature\": 0, \"ignore_eos\": true, \"cache_prompt\": $1}" "$base/completion" >"$dir/answer"
}
ask true 'One'
ask false 'Another'
i=0
while [ $i -lt $((2 * n_pairs)) ]; do
    kept=true
    [ $(((i + i / 2) % 2)) = 0 ] || kept=false # true false false true
    sleep 0.2 # lets copies finish
    before=$(processor_ms)
    ask $kept "Number $i of many words that are not the same: $(seq -s ' ' $((i * 7)) $((i * 7 + 30)))"
    sleep 0.2
    echo "$kept,$(sed 's/.*"predicted_per_token_ms":\([0-9.]*\).*/\1/' "$dir/answer"),$(($(processor_ms) - before))"
    i=$((i + 1))
done | tee "$dir/requests"
for kept in true false; do
    for column in 2 3; do
        grep "^$kept" "$dir/requests" | cut -d , -f $column | sort -n | awk -v of="$kept, column $column:" '{ v[NR] = $1 } END { print of, v[int((NR + 1) / 2)] }'
    done
done
