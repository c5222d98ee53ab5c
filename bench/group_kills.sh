#!/bin/sh
# Kills devices of a group while it generates, and checks that the output is one that a correct engine could write. Uses real processes
# of one thread on loopback.
#
#   bench/group_kills.sh [KILLS] [SEED]      KIN (default: build/kin), TOKENS (200), SPARES (0; 1: two of four share, two are standby),
#       KEYS (a text of another family's metadata, as in bench/families, with at least four key/value heads; default: llama),
#       TYPE (q8_0; with experts f32: of nearly equal ones, rounding chooses another, and then the logits differ much)
#
# A group of four generates the same greedy text repeatedly. Each time a device is killed at a random moment; it returns at once, a second
# later, or after the text. Each text is then split into pieces: from its beginning, the longest piece for which an undisturbed group of
# four or of three generates the same tokens and log-probabilities, to the last digit; and so on from the end of that piece. Prints the
# distinct texts with their pieces (4:61 3:139). Fails if neither group reproduces the next token, if a text has more than three pieces,
# or if a single machine finds another token likelier by a tenth of the logits' root mean square.
set -u
kills=${1:-20} seed=${2:-1} n_tokens=${TOKENS:-200} prompt='1, 5, 9, 14, 20' n_vocab=512
set -- "${KIN:-$PWD/build/kin}"
keys=${KEYS:+$(realpath "$KEYS")}
cd "$(dirname "$0")/../tests" || exit 1
# shellcheck disable=SC2034 # ring.sh uses it
beside=.
# shellcheck source=tests/ring.sh
. ./ring.sh
export KIN_PLAN=tp KIN_PROFILE="$PWD/machine.json" KIN_DRAFT=off KIN_CTX=1024
[ "${SPARES:-0}" = 1 ] && size=2 || size=4
shape="--preset tiny --heads 8 --heads-kv $size --layers 4 --ctx 1024"
[ -z "$keys" ] || shape="--keys $keys"
# shellcheck disable=SC2086 # a list of words
"$mkmodel" $shape --type "${TYPE:-q8_0}" --vocab $n_vocab -o "$dir/model.gguf" 2>"$dir/made" || exit 1
below() { echo $((0x$(echo "$seed $1" | sha256sum | head -c 7) % $2)); } # WHAT N
ask() { # BASE PROMPT N KEEPS FILE: writes each token's id and log-probability to FILE
    curl -s -m 100 "$1/completion" -d "{\"prompt\": [$2], \"n_predict\": $3, \"temperature\": 0, \"ignore_eos\": true, \"n_probs\": 1, \"cache_prompt\": $4}" |
        sed 's/{"id":/\n&/g' | sed -n 's/^{"id":\([0-9]*\),.*"logprob":\([-0-9.e]*\),"top_logprobs".*/\1 \2/p' >"$5"
}
is_whole() { HOME=$dir/head "$kin" status --key-file "$dir/head/key" "127.0.0.1:$port" 2>&1 | grep -q "serving on $n_devices device"; }

claim='texts with a kill'
for who in anna bert cleo; do join $who; done
serve_with $((size - 1)) -m "$dir/model.gguf" --no-webui
wait_until 20 is_whole
begun=$(date +%s%N)
ask "$base" "$prompt" "$n_tokens" false "$dir/whole"
takes_ms=$((($(date +%s%N) - begun) / 1000000))
for i in $(seq "$kills"); do
    victim=$(echo anna bert cleo | cut -d ' ' -f $((1 + $(below "victim $i" 3))))
    ask "$base" "$prompt" "$n_tokens" true "$dir/text" &
    text=$!
    sleep "$(awk -v ms="$(below "when $i" $takes_ms)" 'BEGIN { print ms / 1000 }')"
    eval "kill -9 \$pid_$victim; wait \$pid_$victim" 2>/dev/null
    case $(below "back $i" 3) in 1) sleep 1 ;; 2) wait $text ;; esac && join "$victim"
    wait $text
    wait_until 60 is_whole
    cksum <"$dir/text" | tr ' ' . >>"$dir/names"
    mv "$dir/text" "$dir/text.$(tail -n 1 "$dir/names")"
done

claim='what groups write that lose nobody'
base_all=$base
if [ "$size" = 4 ]; then
    port=$((port + 1))
    for who in dora emma; do join $who; done
    serve_with 2 -m "$dir/model.gguf" --no-webui
fi
ids() { head -n "$2" "$1" | sed 's/ .*//; s/^/, /' | tr -d '\n'; } # FILE N: prints the ids of the first N tokens
goes_on() { # FILE BASE: sets n to the number of FILE's tokens from `at` on that the server at BASE reproduces
    ask "$2" "$prompt$(ids "$1" $at)" $((n_tokens - at)) false "$dir/goes_on"
    n=$(tail -n +$((at + 1)) "$1" | awk 'FNR == NR { want[FNR] = $0; next } want[FNR] != $0 { exit } { n++ } END { print n + 0 }' "$dir/goes_on" -)
}
margin_of() { # FILE: prints the largest amount by which one machine prefers another token, as a share of the logits' root mean square
    alone eval -m "$dir/model.gguf" --tokens "$(echo "$prompt$(ids "$1" "$n_tokens")" | tr -d ,)" --logits "$dir/logits"
    od -An -v -t f4 -w$((4 * n_vocab)) "$dir/logits" | awk -v first="$(echo "$prompt" | wc -w)" 'FNR == NR { id[first + FNR - 1] = $1; next }
        FNR in id { best = $1; sum = 0; for (i = 1; i <= NF; i++) { sum += $i * $i; if ($i > best) best = $i }
            share = (best - $(id[FNR] + 1)) / sqrt(sum / NF); if (share > most) most = share } END { printf "%.4f", most }' "$1" -
}
for text in "$dir"/text.*; do
    at=0 n=1 pieces='' margin=$(margin_of "$text")
    while [ $at -lt "$n_tokens" ] && [ "$n" -gt 0 ]; do
        goes_on "$text" "$base_all"
        n_all=$n
        goes_on "$text" "$base" # with SPARES=1 base_all is the same server
        [ "$n_all" -ge "$n" ] && n=$n_all pieces="$pieces $size:$n_all" || pieces="$pieces $((size - 1)):$n"
        at=$((at + n))
    done
    cmp -s "$text" "$dir/whole" && is=undisturbed || is=another
    echo "$(grep -c "${text##*text.}" "$dir/names") of $kills, $is:$pieces; on one machine within $margin"
    check [ $at -eq "$n_tokens" ]
    check [ "$(echo "$pieces" | wc -w)" -le 3 ]
    check [ "$(echo "$margin" | tr -d .)" -lt 1000 ]
done
tally
