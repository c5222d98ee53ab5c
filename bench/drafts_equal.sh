#!/bin/sh
# Checks that drafts do not change a byte of the output. Generates TOKENS tokens in five ways: on one machine, with streamed weights, on
# a ring of three local processes, in a group of two, and for eight users of a server. Each way runs without drafts, with a draft model and the default
# policy, and with four drafted tokens in every pass. A quarter of the prompts each uses greedy sampling, temperature with top-p,
# penalties, and a grammar. The sixth way, "own": a model of random weights with a draft block of its own (GLM-4.5's family), in a group of two.
#
#   bench/drafts_equal.sh [TOKENS [KIN [MODEL DRAFT MEMORY]]]      default: 10000 tokens each, build/kin, the demo model with its
#       draft model, streamed in 24M; needs curl and jq, and mkmodel beside KIN. DRAFT: words of --draft, such as mtp or mtp:FILE
#   WAYS="alone group" bench/drafts_equal.sh       these only, of alone, streamed, ring, group, own and users
#
# Prints a line for each way with drafts, and exits 1 if an output differs.
set -u
cd "$(dirname "$0")/.." || exit 1
tokens=${1:-10000} kin=${2:-build/kin}
model=${3:-} draft=${4:-assets/demo-draft.gguf} memory=${5:-24M} n_each=400
ways=${WAYS:-alone streamed ring group own users}
is_wanted() { case " $ways " in *" $1 "*) ;; *) return 1 ;; esac } # WAY
work=$(mktemp -d) || exit 1
pids=
cleanup() {
    # shellcheck disable=SC2086 # a list of numbers
    [ -z "$pids" ] || kill $pids 2>/dev/null
    wait
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
export HOME="$work/head"
mkdir "$HOME"
n_texts=$(((tokens / 4 + n_each - 1) / n_each)) n_differ=0

# Writes prompts of several kinds, one per line.
i=0
while [ $i -lt $n_texts ]; do
    for who in 'a girl named Lily' 'a dog named Max' 'an old man' 'a big red bus' 'a boy named Tim'; do
        for what in 'wanted to play' 'saw a bird' 'lost a toy' 'went to the park' 'had a plan'; do
            echo "Once upon a time there was $who who $what. $who"
        done
    done
    i=$((i + 25))
done | head -n $n_texts >"$work/prompts"
cat >"$work/text.gbnf" <<'END'
root ::= (word (", " | " "))+
word ::= [A-Z]? [a-z]+
END
samplers='greedy top_p penalties grammar'
options_of() { # SAMPLER
    case $1 in
    greedy) echo --temp 0 ;;
    top_p) echo --seed 3 --temp 1 --top-p 0.9 ;;
    penalties) echo --seed 4 --temp 0.7 --repeat-penalty 1.2 --presence-penalty 0.3 --frequency-penalty 0.1 ;;
    grammar) echo --seed 5 --temp 0.8 --grammar "$work/text.gbnf" ;;
    esac
}
fields_of() { # SAMPLER
    case $1 in
    greedy) echo '"temperature": 0' ;;
    top_p) echo '"seed": 3, "temperature": 1, "top_p": 0.9' ;;
    penalties) echo '"seed": 4, "temperature": 0.7, "repeat_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1' ;;
    grammar) printf '"seed": 5, "temperature": 0.8, "grammar": %s\n' "$(jq -Rs . "$work/text.gbnf")" ;;
    esac
}

compare() { # WAY WITH: compares the outputs without drafts and with the drafts WITH
    n=$(cat "$work/$1".*.off.n | awk '{ n += $1 } END { print n }')
    for sampler in $samplers; do
        cmp -s "$work/$1.$sampler.off" "$work/$1.$sampler.$2" && continue
        echo "$1, $2, $sampler: the texts differ"
        n_differ=$((n_differ + 1))
    done
    cat "$work/$1".*."$2".log | awk -v way="$1" -v with="$2" -v n="$n" '
        { for (i = 2; i <= NF; i++) { if ($i ~ /^passes/) passes += $(i - 1)
              if ($i ~ /^drafted/) drafted += $(i - 1); if ($i ~ /^accepted/) accepted += $(i - 1) } }
        END { printf "%-9s %-7s %6d tokens, of these %5d drafted ones that were right, of %6d; %6d passes\n", way, with, n, accepted,
                  drafted, passes }'
}

# ---- kin run

write_texts() { # WAY WITH OPTION...
    way=$1 with=$2
    shift 2
    for sampler in $samplers; do
        # shellcheck disable=SC2046 # options and their values
        "$kin" run ${model:+-m "$model"} --lines -n $n_each --ignore-eos --no-echo -t 1 --stats $(options_of "$sampler") "$@" <"$work/prompts" \
            >"$work/$way.$sampler.$with" 2>"$work/$way.$sampler.$with.log" || {
            tail -n 3 "$work/$way.$sampler.$with.log"
            n_differ=$((n_differ + 1))
        }
        sed -n 's/^kin: \([0-9]*\) tokens generated.*/\1/p' "$work/$way.$sampler.$with.log" >"$work/$way.$sampler.$with.n"
    done
}
write_ways() { # WAY OPTION...
    way_now=$1 n_before=$n_differ
    shift
    write_texts "$way_now" off "$@" --draft off
    if grep -qs 'cannot share the layers of this model' "$work/$way_now.greedy.off.log"; then
        echo "$way_now: devices cannot share the layers of this model"
        n_differ=$n_before
        return
    fi
    write_texts "$way_now" policy "$@" --draft $draft
    compare "$way_now" policy
    write_texts "$way_now" four "$@" --draft $draft --draft-min 4
    compare "$way_now" four
}
is_wanted alone && write_ways alone
is_wanted streamed && write_ways streamed --memory "$memory" --ctx 512 --batch 16

port=$((20000 + $$ % 20000))
"$kin" profile --no-gpu -t 1 --json >"$work/profile.json" 2>"$work/profile.log"
write_together() { # WAY PLAN DEVICE...
    way=$1 plan=$2
    shift 2
    is_wanted "$way" || return 0
    for who in head "$@"; do
        mkdir -p "$work/$who"
        (umask 077 && printf '%064d\n' 7 >"$work/$who/key")
        [ "$who" = head ] && continue
        HOME=$work/$who "$kin" join "127.0.0.1:$port" --name "$who" --key-file "$work/$who/key" --listen 127.0.0.1 -t 1 \
            --profile "$work/profile.json" >"$work/$who.log" 2>&1 &
        pids="$pids $!"
    done
    write_ways "$way" --cluster --name desk --key-file "$work/head/key" --listen 127.0.0.1 --port $port --hidden --devices $# \
        --plan "$plan" --profile "$work/profile.json"
    # shellcheck disable=SC2086
    kill $pids
    wait
    pids=
}
write_together ring even anna ben
write_together group tp anna

# A dense layer, then layers with experts and a shared one; what its draft block says is right only by chance.
write_own() {
    cat >"$work/own.txt" <<'END'
architecture glm4moe
context_length 4096
embedding_length 64
block_count 4
nextn_predict_layers 1
feed_forward_length 128
attention.head_count 4
attention.head_count_kv 2
attention.layer_norm_rms_epsilon 0.00001
attention.key_length 32
attention.value_length 32
rope.dimension_count 16
rope.freq_base 1000000.0
leading_dense_block_count 1
expert_count 6
expert_used_count 2
expert_feed_forward_length 64
expert_shared_count 1
expert_weights_norm true
expert_weights_scale 2.5
expert_gating_func 2
optional attn_q.bias attn_k.bias attn_v.bias attn_q_norm.weight attn_k_norm.weight exp_probs_b.bias
draft_norm
END
    "$(dirname "$kin")/mkmodel" --keys "$work/own.txt" --type q8_0 --vocab 512 -o "$work/own.gguf" 2>"$work/own.log" || {
        cat "$work/own.log"
        n_differ=$((n_differ + 1))
        return
    }
    given_model=$model given_draft=$draft
    model=$work/own.gguf draft=mtp
    write_together own tp anna
    model=$given_model draft=$given_draft
}
is_wanted own && write_own

# ---- kin serve, eight users at once

ask() { # WITH OPTION...
    with=$1
    shift
    "$kin" serve ${model:+-m "$model"} --port 0 -t 1 --parallel 8 --no-prefix-cache --metrics "$@" 2>"$work/serve.log" >/dev/null </dev/null &
    pids=$!
    until grep -qs 'serving .* at http' "$work/serve.log"; do kill -0 "$pids" || return 1; done
    base=$(sed -n 's,.*serving .* at \(http://[^ ]*\).*,\1,p' "$work/serve.log")
    for sampler in $samplers; do
        fields=$(fields_of "$sampler") i=0
        while read -r prompt; do
            i=$((i + 1))
            printf '{"prompt": "%s", "n_predict": %d, "ignore_eos": true, %s}' "$prompt" $n_each "$fields" >"$work/body.$i"
        done <"$work/prompts"
        seq $i | xargs -P 8 -I {} curl -s -m 600 -o "$work/answer.{}" -d "@$work/body.{}" "$base/completion"
        for k in $(seq $i); do jq -r .content "$work/answer.$k"; done >"$work/users.$sampler.$with"
        for k in $(seq $i); do jq -e .timings.predicted_n "$work/answer.$k" || n_differ=1; done >"$work/users.$sampler.$with.n"
        for k in $(seq $i); do
            jq -r '.timings | "\(.pass_n // 0) passes \(.draft_n // 0) drafted \(.draft_n_accepted // 0) accepted"' "$work/answer.$k"
        done >"$work/users.$sampler.$with.log"
    done
    kill "$pids"
    wait "$pids"
    pids=
}
if is_wanted users; then
    ask off --draft off
    ask policy --draft $draft
    compare users policy
    ask four --draft $draft --draft-min 4
    compare users four
fi
[ $n_differ -eq 0 ]
