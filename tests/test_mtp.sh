#!/bin/sh
# Drafts from a model's own block for multi-token prediction: the same text on one machine, streamed, in a ring and for several users, as many
# accepted as the block is right, counted by source; files without such a block.
#
#   test_mtp.sh PATH_TO_KIN      (mkmodel is in the same folder)
set -u
# shellcheck source=tests/ring.sh
. "$(dirname "$0")/ring.sh"
key head
model=$dir/model.gguf
make() { "$mkmodel" --preset tiny --arch qwen35 --layers 9 --vocab 2000 --ctx 4096 --endless "$@" >/dev/null || exit 1; }
make --interval 3 --draft-right 0.8 -o "$model"
make --type q8_0 -o "$dir/without.gguf" # whose weights take no time to round
make --interval 3 --draft-right 0.8 --draft-part trunk -o "$dir/trunk.gguf"
make --interval 3 --draft-right 0.8 --draft-part blocks -o "$dir/blocks.gguf"
make --type q8_0 --interval 3 --draft-blocks 3 --draft-right 0.8 -o "$dir/several.gguf"
prompt='once upon a time there was a sea'

# same_text NAME COMMAND...: the text with three drafted tokens in each pass, and with as many as pay, is that without drafts
same_text() {
    name=$1
    shift
    "$@" -m "$model" -p "$prompt" --ignore-eos --draft off >"$dir/$name.off"
    for drafts in 'mtp --draft-min 3' mtp auto; do
        # shellcheck disable=SC2086 # options and their values
        "$@" -m "$model" -p "$prompt" --ignore-eos --stats --draft $drafts >"$dir/$name.mtp" || fail "status $?"
        same "$dir/$name.off" "$dir/$name.mtp"
    done
}

claim='one machine: the text is the same, and so many drafts are right as the generator says'
for sampler in '--temp 0' '--seed 3 --temp 1 --top-p 0.9' '--seed 4 --temp 0.7 --repeat-penalty 1.2' '--temp 0 --memory 32M --ctx 512 --batch 16'; do
    : >"$dir/head.log"
    # shellcheck disable=SC2086
    same_text alone alone run -n 250 $sampler
    says "$dir/head.log" 'mtp: [0-9]* drafted, [1-9][0-9]* accepted'
done
: >"$dir/head.log"
alone run -m "$model" -p "$prompt" -n 400 --temp 0 --ignore-eos --stats --draft mtp --draft-min 1 --draft-max 1 >"$dir/one"
share=$(sed -n 's/.*mtp: [0-9]* drafted, [0-9]* accepted (\([0-9]*\) %).*/\1/p' "$dir/head.log")
check [ "${share:-0}" -ge 70 ]
check [ "${share:-0}" -le 90 ]

claim='auto uses the block where the model keeps its memory, and says so where it does not'
export KIN_VERBOSE=1
alone run -m "$model" -p "$prompt" -n 60 --temp 0 --ignore-eos --stats >"$dir/auto" 2>"$dir/auto.err"
cp "$dir/head.log" "$dir/auto.log" && : >"$dir/head.log"
says "$dir/auto.log" 'mtp: [1-9][0-9]* drafted, [1-9][0-9]* accepted'
for memory in 20M 22M 24M; do # with 24M all weights are in memory, which they would not be beside the block
    alone run -m "$model" -p "$prompt" -n 60 --temp 0 --ignore-eos --stats --memory $memory --ctx 512 --batch 16 >"$dir/tight" || fail "status $?"
    same "$dir/auto" "$dir/tight"
done
says "$dir/head.log" 'no drafts by multi-token prediction: their block would take too much of the memory'
check [ "$(grep -c 'mtp: [1-9][0-9]* drafted' "$dir/head.log")" -eq 0 ]
check [ "$(grep -c 'too much of the memory' "$dir/head.log")" -eq 3 ]
unset KIN_VERBOSE

claim='a ring of three, in one round and in two'
join anna
join ben
same_text ring on_head run --devices 2 -n 120 --temp 0
same_text rounds on_head run --devices 2 --rounds 2 -n 60 --seed 3 --temp 1
says "$dir/head.log" 'mtp: [0-9]* drafted, [1-9][0-9]* accepted'

claim='a server counts by source; a conversation goes on; users beside each other get their own texts'
serve_with 2 -m "$model" --metrics --draft mtp --draft-min 2 --parallel 4
text_of() { # NAME PROMPT N [CACHE]
    printf '{"prompt": "%s", "n_predict": %d, "ignore_eos": true, "temperature": 0, "cache_prompt": %s}' "$2" "$3" "${4:-true}" \
        >"$dir/$1.body"
    curl -s -m 240 -d "@$dir/$1.body" -o "$dir/$1.json" "$base/completion"
}
texts() { sed -n 's/.*"content":"\([^"]*\)".*/\1/p' "$dir/$1.json"; } # NAME
text_of first "$prompt" 100
says "$dir/first.json" '"draft_sources":{"mtp":{"draft_n":[1-9][0-9]*,"draft_n_accepted":[1-9]'
text_of second "$prompt$(texts first)" 50
text_of second "$prompt$(texts first)" 50
says "$dir/second.json" '"cache_n":[1-9]'
text_of again "$prompt$(texts first)" 50 false
check [ "$(texts second)" = "$(texts again)" ]
curls=
for who in 1 2 3 4; do
    text_of "user$who" "$prompt $who" 80 &
    curls="$curls $!"
done
# shellcheck disable=SC2086
wait $curls
for who in 1 2 3 4; do
    text_of "alone$who" "$prompt $who" 80
    check [ "$(texts "user$who")" != "$(texts first)" ]
    check [ "$(texts "user$who")" = "$(texts "alone$who")" ]
done
curl -s -m 20 -o "$dir/metrics" "$base/metrics"
says "$dir/metrics" '^kin:drafted_tokens_total{source="mtp"} [1-9]'
says "$dir/metrics" '^kin:accepted_tokens_total{source="mtp"} [1-9]'
says "$dir/metrics" '^kin:accepted_tokens_total{source="model"} 0$'
kill "$pid_head"
wait "$pid_head"

claim='blocks in a file of their own, by mtp:FILE and by FILE'
: >"$dir/head.log"
alone run -m "$dir/trunk.gguf" -p "$prompt" -n 200 --temp 0 --ignore-eos --draft off >"$dir/apart.off"
for words in "mtp:$dir/blocks.gguf" "$dir/blocks.gguf" "mtp:$model"; do
    : >"$dir/head.log"
    alone run -m "$dir/trunk.gguf" -p "$prompt" -n 200 --temp 0 --ignore-eos --stats --draft "$words" --draft-min 2 >"$dir/apart" ||
        fail "status $?"
    same "$dir/apart.off" "$dir/apart"
    says "$dir/head.log" 'mtp: [1-9][0-9]* drafted, [1-9][0-9]* accepted'
done
alone run -m "$dir/without.gguf" -p "$prompt" -n 20 --draft "mtp:$dir/trunk.gguf" >"$dir/out" && fail 'it runs'
says "$dir/head.log" 'trunk.gguf: the file has no block for multi-token prediction'
alone run -m "$dir/blocks.gguf" -p "$prompt" -n 20 >"$dir/out" && fail 'it runs'
says "$dir/head.log" 'has only blocks for multi-token prediction; give it with the model'
alone run -m "$model" -p "$prompt" -n 20 --draft "mtp:" >"$dir/out"
check [ $? -eq 2 ]

claim='several blocks: the same text; at most a token of each'
model=$dir/several.gguf
: >"$dir/head.log"
same_text several alone run -n 200 --temp 0
same_text several-streamed alone run -n 200 --seed 3 --temp 1 --memory 32M --ctx 512 --batch 16
says "$dir/head.log" 'mtp: [0-9]* drafted, [1-9][0-9]* accepted'
"$kin" info "$model" >"$dir/out"
says "$dir/out" '^drafts  *by 3 blocks for multi-token prediction, '
model=$dir/model.gguf

claim='every family: the same text, though next to all drafts are refused; also with the blocks in a file of their own'
for text in "$(dirname "$0")"/golden/drafts/*.txt; do
    "$mkmodel" --keys "$text" --type f32 --vocab 288 -o "$dir/family.gguf" >/dev/null || fail "$text"
    : >"$dir/head.log"
    alone run -m "$dir/family.gguf" -p "$prompt" -n 50 --temp 0 --ignore-eos --draft off >"$dir/family.off"
    alone run -m "$dir/family.gguf" -p "$prompt" -n 50 --temp 0 --ignore-eos --stats --draft mtp --draft-min 3 >"$dir/family" || fail "status $?"
    same "$dir/family.off" "$dir/family"
    says "$dir/head.log" 'mtp: [1-9][0-9]* drafted'
    grep 'mtp: [0-9]* drafted' "$dir/head.log" >"$dir/inside"
    for part in trunk blocks; do
        "$mkmodel" --keys "$text" --type f32 --vocab 288 --draft-part $part -o "$dir/family-$part.gguf" >/dev/null || fail "$text"
    done
    : >"$dir/head.log"
    alone run -m "$dir/family-trunk.gguf" -p "$prompt" -n 50 --temp 0 --ignore-eos --stats --draft "mtp:$dir/family-blocks.gguf" \
        --draft-min 3 >"$dir/family" || fail "status $?"
    same "$dir/family.off" "$dir/family"
    grep 'mtp: [0-9]* drafted' "$dir/head.log" >"$dir/apart"
    same "$dir/inside" "$dir/apart"
done
"$mkmodel" --keys "$(dirname "$0")/../bench/families/lfm2.txt" --draft-part blocks -o "$dir/family.gguf" 2>"$dir/out" && fail 'it is written'
says "$dir/out" 'the model has no draft blocks, and so no parts'

claim='a file without such a block'
alone run -m "$dir/without.gguf" -p "$prompt" -n 20 --draft auto >"$dir/out" || fail "status $?"
alone run -m "$dir/without.gguf" -p "$prompt" -n 20 --draft mtp >"$dir/out" && fail 'it runs'
says "$dir/head.log" 'the file has no block for multi-token prediction'
alone run -m "$model" -p "$prompt" -n 20 --draft "mtp,$model" >"$dir/out"
check [ $? -eq 2 ]
says "$dir/head.log" "mtp cannot be combined with a draft model"
"$kin" info "$model" >"$dir/out"
says "$dir/out" '^drafts  *by a block for multi-token prediction, '
tally
