#!/bin/sh
# Compares kin with llama.cpp on one model of each family (bench/families), in turns: a prompt of 512 tokens and 32 generated ones.
#
#   LLAMA="chroot /srv/sid" bench/families.sh [ROUNDS] [NAME...]
#
# BUILD: the folder with kin and mkmodel (default: build). LLAMA: the prefix of llama-bench (default: none, it is on the PATH).
# TYPE: the mix of weight types (default: q4_k_m). Models have random weights, a few of the published layers, and a vocabulary
# of 32000 tokens. Prints tokens/s as medians of the rounds, RATIO, kin over llama.cpp, as the median of the rounds' ratios ("-" where
# llama.cpp does not open the model), and T4: the time of a pass of 4 tokens over that of one token.
set -eu
rounds=${1:-3}
[ $# -eq 0 ] || shift
build=${BUILD:-build}
here=$(dirname "$0")
threads=${THREADS:-2}
dir=$(mktemp -d "$build/families.XXXXXX")
trap 'rm -rf "$dir"' EXIT INT TERM
[ $# -gt 0 ] || set -- $(cd "$here/families" && ls | sed 's/\.txt$//')

median() { sort -n | awk '{v[NR]=$1} END{print NR % 2 ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
kin_prompt() { "$build/kin" bench -m "$model" -t "$threads" --cache "$dir/cache" --prompt 512 --gen 1 --reps 1 --json | field prompt_tokens_per_s; }
kin_pass() { "$build/kin" bench -m "$model" -t "$threads" --cache "$dir/cache" --prompt 1 --gen 32 --rows "$1" --reps 1 --json | field tpot_ms; }
# shellcheck disable=SC2086 # words of a command
llama_bench() {
    ${LLAMA:-} llama-bench -m "$model" -t "$threads" "$@" -r 1 -o csv 2>/dev/null | tr -d '"' |
        awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == "avg_ts") c = i} NR > 1 {print $c}'
}
llama() { # -p N -n N; without flash attention where it fails with it
    _rate=$(llama_bench "$@" || true)
    [ -n "$_rate" ] || _rate=$(llama_bench "$@" -fa off || true)
    echo "$_rate"
}
turn() { # NAME KIN LLAMA: notes the two and their ratio
    echo "$2" >>"$dir/$1.kin"
    [ -n "$3" ] || return 0
    echo "$3" >>"$dir/$1.llama"
    awk "BEGIN {print $2 / $3}" >>"$dir/$1.ratio"
}
of() { if [ -f "$dir/$1" ]; then median <"$dir/$1" | awk '{printf "%.3g", $1}'; else echo -; fi; }

printf '%-16s %10s %10s %7s %10s %10s %7s %6s\n' family 'prompt kin' llama.cpp ratio 'gen kin' llama.cpp ratio T4
for name; do
    model=$dir/$name.gguf
    rm -rf "$dir"/*
    "$build/mkmodel" --keys "$here/families/$name.txt" --type "${TYPE:-q4_k_m}" --vocab 32000 -o "$model" >"$dir/log"
    "$build/kin" run -m "$model" --cache "$dir/cache" -t "$threads" -p x -n 1 --ctx 1024 >"$dir/log" 2>&1 # makes the prepacked cache
    for _ in $(seq "$rounds"); do
        turn prompt "$(kin_prompt)" "$(llama -p 512 -n 0)"
        one=$(kin_pass 1)
        turn generate "$(awk "BEGIN {print 1000 / $one}")" "$(llama -p 0 -n 32)"
        awk "BEGIN {print $(kin_pass 4) / $one}" >>"$dir/t4"
    done
    printf '%-16s %10s %10s %7s %10s %10s %7s %6s\n' "$name" "$(of prompt.kin)" "$(of prompt.llama)" "$(of prompt.ratio)" \
        "$(of generate.kin)" "$(of generate.llama)" "$(of generate.ratio)" "$(of t4)"
done
